#include "comm/collectives/checks.h"

#include <algorithm>
#include <array>
#include <span>

#include <lockstep/base/error.h>

#include "comm/collectives/overlap.h"
#include "comm/transport/gloo/gloo_transport.h"

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

void check_tensor(const Collective& collective, const at::Tensor& tensor) {
  if (!tensor.defined()) refuse(collective, "tensor is not usable", "a defined tensor", "an undefined one");
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided) {
    refuse(collective, "tensor is not usable", "a dense CPU tensor", tensor.toString());
  }
  if (!is_carried(tensor.scalar_type())) {
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
  const auto dtype = collective.output.scalar_type();
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

void check_rank(const Collective& collective, const std::string& what, int size) {
  if (collective.root >= 0 && collective.root < size) return;
  refuse(collective, what + " is no rank of the group", "0 to " + std::to_string(size - 1),
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
                int rank, int size) {
  if (list.size() != static_cast<std::size_t>(size)) {
    refuse(collective, "the list must hold one tensor per rank", std::to_string(size) + " tensors",
           std::to_string(list.size()));
  }
  for (const auto& tensor : list) {
    check_tensor(collective, tensor);
    check_same_dtype(collective, tensor, own);
  }
  check_numel(collective, list[static_cast<std::size_t>(rank)].numel(), own.numel());
}

void check_list_of_root(const Collective& collective, std::span<const at::Tensor> list, const at::Tensor& own,
                        int rank, int size) {
  check_tensor(collective, own);
  check_rank(collective, "root", size);
  if (rank == collective.root) return check_list(collective, list, own, rank, size);
  if (list.empty()) return;
  refuse(collective, "only rank " + std::to_string(collective.root) + ", the root, has a list of tensors",
         "an empty list", std::to_string(list.size()) + " tensors");
}

void check_splits(const Collective& collective, const at::Tensor& tensor,
                  std::span<const std::int64_t> splits, int size) {
  check_tensor(collective, tensor);
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

void check_all_to_all(const Collective& collective, int rank, int size) {
  const auto& output = collective.output;
  const auto& input = collective.input;
  check_splits(collective, output, collective.output_splits, size);
  check_splits(collective, input, collective.input_splits, size);
  check_same_dtype(collective, input, output);
  const auto own = static_cast<std::size_t>(rank);
  const auto element = static_cast<std::int64_t>(input.element_size());
  check_numel(collective, bytes_by_rank(input, collective.input_splits, size)[own] / element,
              bytes_by_rank(output, collective.output_splits, size)[own] / element);
}

void check_all_to_all_list(const Collective& collective, int rank, int size) {
  const auto own = static_cast<std::size_t>(rank);
  if (own >= collective.inputs.size()) {
    refuse(collective, "the list must hold one tensor per rank", std::to_string(size) + " tensors",
           std::to_string(collective.inputs.size()));
  }
  check_tensor(collective, collective.inputs[own]);
  check_list(collective, collective.inputs, collective.inputs[own], rank, size);
  check_list(collective, collective.outputs, collective.inputs[own], rank, size);
}

void check_message(const Collective& collective, const at::Tensor& tensor, int rank, int size) {
  check_tensor(collective, tensor);
  const bool is_send = collective.kind == CollectiveKind::kSend;
  check_rank(collective, is_send ? "dst" : "src", size);
  if (collective.root == rank) {
    refuse(collective, std::string(is_send ? "dst" : "src") + " is this rank itself", "another rank",
           std::to_string(rank), "copy the tensor instead");
  }
  if (collective.tag < 0 || collective.tag > kLastTag) {
    refuse(collective, "tag is out of range", "0 to " + std::to_string(kLastTag),
           std::to_string(collective.tag));
  }
}

void check_gathered(const Collective& collective, const at::Tensor& whole, const at::Tensor& part, int size) {
  check_tensor(collective, whole);
  check_tensor(collective, part);
  check_sizes(collective, whole, part, size);
}

void check_arguments(const Collective& collective, int rank, int size) {
  const auto& output = collective.output;
  const auto& input = collective.input;
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      check_tensor(collective, output);
      return check_reduce_op(collective);
    case CollectiveKind::kReduce:
      check_tensor(collective, output);
      check_rank(collective, "root", size);
      return check_reduce_op(collective);
    case CollectiveKind::kBroadcast:
      check_tensor(collective, output);
      return check_rank(collective, "root", size);
    case CollectiveKind::kAllGather:
      return check_gathered(collective, output, input, size);
    case CollectiveKind::kAllGatherList:
      check_tensor(collective, input);
      return check_list(collective, collective.outputs, input, rank, size);
    case CollectiveKind::kGather:
      return check_list_of_root(collective, collective.outputs, input, rank, size);
    case CollectiveKind::kScatter:
      return check_list_of_root(collective, collective.inputs, output, rank, size);
    case CollectiveKind::kReduceScatter:
      check_gathered(collective, input, output, size);
      return check_reduce_op(collective);
    case CollectiveKind::kAllToAll:
      return check_all_to_all(collective, rank, size);
    case CollectiveKind::kAllToAllList:
      return check_all_to_all_list(collective, rank, size);
    case CollectiveKind::kSend:
      return check_message(collective, input, rank, size);
    case CollectiveKind::kRecv:
      return check_message(collective, output, rank, size);
    case CollectiveKind::kBarrier:
    case CollectiveKind::kMonitoredBarrier:
      return;
  }
}

void check_memory(const Collective& collective, int rank) {
  const auto fault = fault_in_memory(collective, rank);
  if (fault.empty()) return;
  refuse(collective, fault, "tensors with memory of their own", "memory that is shared",
         "clone() one of them");
}

}  // namespace

bool is_carried(at::ScalarType dtype) { return std::ranges::find(kDtypes, dtype) != kDtypes.end(); }

void check_collective(const Collective& collective, int rank, int size) {
  check_arguments(collective, rank, size);
  check_memory(collective, rank);
}

}  // namespace lockstep::detail
