// What a collective accepts: its arguments, and the memory of its tensors.
#include "comm/collectives/collective.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include <lockstep/base/error.h>

#include "comm/transport/transport.h"

namespace lockstep::detail {
namespace {

constexpr std::array kDtypes = {at::kDouble,        at::kFloat,        at::kHalf, at::kBFloat16,
                                at::kComplexDouble, at::kComplexFloat, at::kLong, at::kInt,
                                at::kShort,         at::kChar,         at::kByte, at::kBool};

[[noreturn]] void refuse(const Collective& collective, const std::string& what, const std::string& expected,
                         const std::string& got, const std::string& hint = "") {
  throw CommError("comm", {.what = std::string(name_of(collective.kind)) + ": " + what,
                           .expected = expected,
                           .got = got,
                           .hint = hint});
}

std::string devices_text(const Caller& caller) {
  std::string text;
  for (const auto type : caller.devices) text += (text.empty() ? "" : " or ") + c10::DeviceTypeName(type);
  return text;
}

// A call's tensors are moved together.
void check_devices(const Collective& collective) {
  const at::Tensor* first = nullptr;
  const auto check = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (first == nullptr) first = &tensor;
    if (tensor.device() == first->device()) return;
    refuse(collective, "tensors are on two devices", "all of them on " + first->device().str(),
           tensor.device().str());
  };
  check(collective.output);
  check(collective.input);
  std::ranges::for_each(collective.outputs, check);
  std::ranges::for_each(collective.inputs, check);
}

void check_tensor(const Collective& collective, const at::Tensor& tensor, const Caller& caller) {
  if (!tensor.defined()) refuse(collective, "tensor is not usable", "a defined tensor", "an undefined one");
  const bool is_on_device = std::ranges::find(caller.devices, tensor.device().type()) != caller.devices.end();
  if (!is_on_device || tensor.layout() != at::kStrided) {
    refuse(collective, "tensor is not usable", "a dense " + devices_text(caller) + " tensor",
           tensor.toString());
  }
  if (!is_supported(tensor.scalar_type())) {
    refuse(collective, "dtype is not supported",
           "float64, float32, float16, bfloat16, complex128, complex64, int64, int32, int16, int8, uint8 or "
           "bool",
           c10::toString(tensor.scalar_type()));
  }
}

bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
}

bool compares(ReduceOp op) { return op == ReduceOp::kMin || op == ReduceOp::kMax; }

void check_reduce_op(const Collective& collective) {
  const auto dtype = operand_of(collective).scalar_type();
  const auto op = collective.op;
  if (is_bitwise(op) && !at::isIntegralType(dtype, true)) {
    refuse(collective, "kBitAnd, kBitOr and kBitXor need integers or bool", "an integer dtype or bool",
           c10::toString(dtype));
  }
  if (compares(op) && at::isComplexType(dtype)) {
    refuse(collective, "complex numbers have no order", "kSum, kAvg or kProduct",
           op == ReduceOp::kMin ? "kMin" : "kMax");
  }
  if (op == ReduceOp::kAvg && at::isIntegralType(dtype, true)) {
    refuse(collective, "kAvg needs a floating-point tensor", "a floating-point or complex dtype",
           c10::toString(dtype), "sum it and divide, or convert it first");
  }
  if (dtype == at::kBool && !compares(op) && !is_bitwise(op)) {
    refuse(collective, "bool tensors have no arithmetic", "kMin (all ranks), kMax (any rank) or a bitwise op",
           "another op", "convert it to int64 to count");
  }
}

void check_sizes(const Collective& collective, const at::Tensor& whole, const at::Tensor& part, int size) {
  if (whole.scalar_type() != part.scalar_type()) {
    refuse(collective, "input and output differ in dtype", c10::toString(collective.input.scalar_type()),
           c10::toString(collective.output.scalar_type()));
  }
  if (whole.numel() != part.numel() * size) {
    refuse(collective, "the whole must hold " + std::to_string(size) + " parts (one per rank)",
           std::to_string(part.numel() * size) + " elements for parts of " + std::to_string(part.numel()),
           std::to_string(whole.numel()));
  }
}

void check_rank(const Collective& collective, const std::string& what, const Caller& caller) {
  if (collective.root >= 0 && collective.root < caller.size) return;
  refuse(collective, what + " is not a rank of the group", "0 to " + std::to_string(caller.size - 1),
         std::to_string(collective.root));
}

void check_same_dtype(const Collective& collective, const at::Tensor& tensor, const at::Tensor& other) {
  if (tensor.scalar_type() == other.scalar_type()) return;
  refuse(collective, "tensors differ in dtype", c10::toString(other.scalar_type()),
         c10::toString(tensor.scalar_type()));
}

void check_numel(const Collective& collective, std::int64_t numel, std::int64_t expected) {
  if (numel == expected) return;
  refuse(collective, "what this rank gives to itself differs in size from what it takes",
         std::to_string(expected) + " elements", std::to_string(numel));
}

// `own` is what this rank gives to, or gets from, itself.
void check_list(const Collective& collective, std::span<const at::Tensor> list, const at::Tensor& own,
                const Caller& caller) {
  if (list.size() != static_cast<std::size_t>(caller.size)) {
    refuse(collective, "the list must hold one tensor per rank", std::to_string(caller.size) + " tensors",
           std::to_string(list.size()));
  }
  for (const auto& tensor : list) {
    check_tensor(collective, tensor, caller);
    check_same_dtype(collective, tensor, own);
  }
  check_numel(collective, list[static_cast<std::size_t>(caller.rank)].numel(), own.numel());
}

void check_list_of_root(const Collective& collective, std::span<const at::Tensor> list, const at::Tensor& own,
                        const Caller& caller) {
  check_tensor(collective, own, caller);
  check_rank(collective, "root", caller);
  if (caller.rank == collective.root) return check_list(collective, list, own, caller);
  if (list.empty()) return;
  refuse(collective, "only rank " + std::to_string(collective.root) + ", the root, has a list of tensors",
         "an empty list", std::to_string(list.size()) + " tensors");
}

void check_splits(const Collective& collective, const at::Tensor& tensor,
                  std::span<const std::int64_t> splits, const Caller& caller) {
  const int size = caller.size;
  check_tensor(collective, tensor, caller);
  if (tensor.dim() == 0) refuse(collective, "a tensor cannot be cut", "one dimension or more", "a number");
  const auto rows = tensor.size(0);
  if (splits.empty() && rows % size == 0) return;
  const auto expected =
      splits.empty()
          ? "a number of rows that " + std::to_string(size) + " divides, or splits"
          : std::to_string(size) + " splits of 0 or more rows, " + std::to_string(rows) + " together";
  std::int64_t sum = 0;
  bool is_right = splits.size() == static_cast<std::size_t>(size);
  for (const auto split : splits) {
    is_right &= split >= 0;
    sum += split;
  }
  if (is_right && sum == rows) return;
  refuse(collective, "the splits do not fit the tensor", expected,
         splits.empty() ? std::to_string(rows) + " rows"
                        : c10::str(at::IntArrayRef(splits.data(), splits.size())));
}

void check_message(const Collective& collective, const at::Tensor& tensor, const std::string& other,
                   const Caller& caller) {
  check_tensor(collective, tensor, caller);
  check_rank(collective, other, caller);
  if (collective.root == caller.rank) {
    refuse(collective, other + " is this rank itself", "another rank", std::to_string(caller.rank),
           "copy the tensor instead");
  }
  if (collective.tag < 0 || collective.tag > kLastTag) {
    refuse(collective, "tag is out of range", "0 to " + std::to_string(kLastTag),
           std::to_string(collective.tag));
  }
}

void check_gathered(const Collective& collective, const at::Tensor& whole, const at::Tensor& part,
                    const Caller& caller) {
  check_tensor(collective, whole, caller);
  check_tensor(collective, part, caller);
  check_sizes(collective, whole, part, caller.size);
}

// Where a tensor lies in memory.
struct Region {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool is_written = false;
};

using Regions = std::vector<Region>;

// Tensors with gaps may lie between each other's elements; a collective works on copies of them.
bool has_region(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0 && tensor.is_non_overlapping_and_dense();
}

Region region_of(const at::Tensor& tensor, bool is_written) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return {begin, begin + tensor.nbytes(), is_written};
}

void add_written(Regions& regions, const at::Tensor& tensor) {
  if (has_region(tensor)) regions.push_back(region_of(tensor, true));
}

// Less `kept`, a part of it or nothing, which may be written.
void add_read(Regions& regions, const at::Tensor& tensor, const at::Tensor& kept) {
  if (!has_region(tensor)) return;
  const auto whole = region_of(tensor, false);
  if (!kept.defined()) return regions.push_back(whole);
  const auto hole = region_of(kept, false);
  if (whole.begin < hole.begin) regions.push_back({whole.begin, hole.begin});
  if (hole.end < whole.end) regions.push_back({hole.end, whole.end});
}

bool do_collide(Regions regions) {
  std::ranges::sort(regions, {}, &Region::begin);
  std::uintptr_t end_of_all = 0, end_of_written = 0;
  for (const auto& region : regions) {
    if (region.begin < (region.is_written ? end_of_all : end_of_written)) return true;
    end_of_all = std::max(end_of_all, region.end);
    if (region.is_written) end_of_written = std::max(end_of_written, region.end);
  }
  return false;
}

bool lies_in_place(const at::Tensor& input, const at::Tensor& part) {
  return input.defined() && part.defined() && input.const_data_ptr() == part.const_data_ptr() &&
         input.nbytes() == part.nbytes();
}

at::Tensor part_of(const at::Tensor& whole, int rank, std::int64_t elements) {
  return whole.view({-1}).narrow(0, rank * elements, elements);
}

// What this rank gives to itself, and where that comes to.
std::pair<at::Tensor, at::Tensor> own_parts(const Collective& collective, int rank) {
  const auto own = static_cast<std::size_t>(rank);
  const auto& outputs = collective.outputs;
  const auto& inputs = collective.inputs;
  if (!outputs.empty() || !inputs.empty()) {
    return {own < inputs.size() ? inputs[own] : collective.input,
            own < outputs.size() ? outputs[own] : collective.output};
  }
  const auto& output = collective.output;
  const auto& input = collective.input;
  if (collective.kind == CollectiveKind::kAllGather && output.is_contiguous())
    return {input, part_of(output, rank, input.numel())};
  if (collective.kind == CollectiveKind::kReduceScatter && input.is_contiguous())
    return {part_of(input, rank, output.numel()), output};
  return {};
}

Regions regions_of(const Collective& collective, int rank) {
  Regions regions;
  add_written(regions, collective.output);
  for (const auto& tensor : collective.outputs) add_written(regions, tensor);
  const auto [goes, comes] = own_parts(collective, rank);
  const auto kept = lies_in_place(goes, comes) ? goes : at::Tensor();
  const auto& inputs = collective.inputs;
  add_read(regions, collective.input, kept);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    add_read(regions, inputs[i], i == static_cast<std::size_t>(rank) ? kept : at::Tensor());
  return regions;
}

bool repeats_itself(const at::Tensor& tensor) {
  return tensor.defined() && at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
}

bool has_one_tensor(const Collective& collective) {
  return collective.inputs.empty() && collective.outputs.empty() &&
         !(collective.input.defined() && collective.output.defined());
}

// What is wrong with the memory of the tensors: one that is written holds an element twice, or shares memory
// with another one. What a rank gives to itself may lie in its place already. "" if nothing is wrong, or that
// cannot be told cheaply.
std::string fault_in_memory(const Collective& collective, int rank) {
  if (repeats_itself(collective.output) || std::ranges::any_of(collective.outputs, repeats_itself)) {
    return "an output holds one element in several places (as after expand()), and cannot be written";
  }
  if (!has_one_tensor(collective) && do_collide(regions_of(collective, rank))) {
    return "an output shares memory with another tensor";
  }
  return "";
}

}  // namespace

bool is_supported(at::ScalarType dtype) { return std::ranges::find(kDtypes, dtype) != kDtypes.end(); }

void check_all_reduce(const Collective& collective, const Caller& caller) {
  check_tensor(collective, collective.output, caller);
  check_reduce_op(collective);
}

void check_all_reduce_list(const Collective& collective, const Caller& caller) {
  if (collective.outputs.empty()) refuse(collective, "the list is empty", "one tensor at least", "none");
  for (const auto& tensor : collective.outputs) {
    check_tensor(collective, tensor, caller);
    check_same_dtype(collective, tensor, collective.outputs.front());
  }
  check_reduce_op(collective);
}

void check_reduce(const Collective& collective, const Caller& caller) {
  check_tensor(collective, collective.output, caller);
  check_rank(collective, "root", caller);
  check_reduce_op(collective);
}

void check_broadcast(const Collective& collective, const Caller& caller) {
  check_tensor(collective, collective.output, caller);
  check_rank(collective, "root", caller);
}

void check_all_gather(const Collective& collective, const Caller& caller) {
  check_gathered(collective, collective.output, collective.input, caller);
}

void check_all_gather_list(const Collective& collective, const Caller& caller) {
  check_tensor(collective, collective.input, caller);
  check_list(collective, collective.outputs, collective.input, caller);
}

void check_gather(const Collective& collective, const Caller& caller) {
  check_list_of_root(collective, collective.outputs, collective.input, caller);
}

void check_scatter(const Collective& collective, const Caller& caller) {
  check_list_of_root(collective, collective.inputs, collective.output, caller);
}

void check_reduce_scatter(const Collective& collective, const Caller& caller) {
  check_gathered(collective, collective.input, collective.output, caller);
  check_reduce_op(collective);
}

void check_all_to_all(const Collective& collective, const Caller& caller) {
  const auto& output = collective.output;
  const auto& input = collective.input;
  check_splits(collective, output, collective.output_splits, caller);
  check_splits(collective, input, collective.input_splits, caller);
  check_same_dtype(collective, input, output);
  const auto own = static_cast<std::size_t>(caller.rank);
  const auto element = static_cast<std::int64_t>(input.element_size());
  check_numel(collective, bytes_by_rank(input, collective.input_splits, caller.size)[own] / element,
              bytes_by_rank(output, collective.output_splits, caller.size)[own] / element);
}

void check_all_to_all_list(const Collective& collective, const Caller& caller) {
  const auto own = static_cast<std::size_t>(caller.rank);
  if (own >= collective.inputs.size()) {
    refuse(collective, "the list must hold one tensor per rank", std::to_string(caller.size) + " tensors",
           std::to_string(collective.inputs.size()));
  }
  check_tensor(collective, collective.inputs[own], caller);
  check_list(collective, collective.inputs, collective.inputs[own], caller);
  check_list(collective, collective.outputs, collective.inputs[own], caller);
}

void check_send(const Collective& collective, const Caller& caller) {
  check_message(collective, collective.input, "dst", caller);
}

void check_recv(const Collective& collective, const Caller& caller) {
  check_message(collective, collective.output, "src", caller);
}

void check_collective(const Collective& collective, const Caller& caller) {
  if (const auto check = row_of(collective.kind).check) check(collective, caller);
  check_devices(collective);
  const auto fault = fault_in_memory(collective, caller.rank);
  if (fault.empty()) return;
  refuse(collective, fault, "tensors with memory of their own", "memory that is shared",
         "clone() one of them");
}

}  // namespace lockstep::detail
