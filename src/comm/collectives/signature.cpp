#include "comm/collectives/signature.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <sstream>

namespace lockstep::detail {
namespace {

using Numbers = std::vector<std::int64_t>;

constexpr std::uint8_t kByDevices = 0x80;  // beside the kind

void add_shape(Signature& signature, at::IntArrayRef sizes) {
  signature.dimensions = static_cast<std::uint8_t>(sizes.size());
  std::copy_n(sizes.begin(), std::min(sizes.size(), signature.sizes.size()), signature.sizes.begin());
  for (const auto size : sizes) {
    signature.shape_hash = (signature.shape_hash ^ static_cast<std::uint64_t>(size)) * 0x9e3779b97f4a7c15;
  }
}

std::string shape_text(const Signature& signature) {
  std::string text;
  const auto shown = std::min<std::size_t>(signature.dimensions, signature.sizes.size());
  for (std::size_t i = 0; i < shown; ++i) text += (i > 0 ? ", " : "") + std::to_string(signature.sizes[i]);
  return "[" + text + (shown < signature.dimensions ? ", ..." : "") + "]";
}

std::string dtype_text(std::int8_t dtype) {
  return std::string(c10::getDtypeNames(static_cast<at::ScalarType>(dtype)).first);
}

// Tensors that hold others have one dimension.
std::string layout_text(const Signature& signature) {
  if (signature.dimensions > 1 || signature.sizes.back() == 0) return "";
  std::ostringstream text;
  text << " holding tensors of layout " << std::hex << signature.sizes.back();
  return text.str();
}

std::int64_t byte_count(const at::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); }

Numbers bytes_of_all(const std::vector<at::Tensor>& tensors) {
  Numbers bytes;
  for (const auto& tensor : tensors) bytes.push_back(byte_count(tensor));
  return bytes;
}

std::int64_t elements_in(const std::vector<at::Tensor>& tensors) {
  std::int64_t count = 0;
  for (const auto& tensor : tensors) count += tensor.numel();
  return count;
}

Numbers none(int size) { return Numbers(static_cast<std::size_t>(size), 0); }

Numbers only_for(int member, std::int64_t amount, int size) {
  auto bytes = none(size);
  bytes[static_cast<std::size_t>(member)] = amount;
  return bytes;
}

Numbers joined(Numbers given, const Numbers& expected) {
  given.insert(given.end(), expected.begin(), expected.end());
  return given;
}

}  // namespace

Numbers bytes_of_all_gather_list(const Collective& collective, int /*rank*/, int size) {
  return joined(Numbers(static_cast<std::size_t>(size), byte_count(collective.input)),
                bytes_of_all(collective.outputs));
}

Numbers bytes_of_gather(const Collective& collective, int rank, int size) {
  return joined(only_for(collective.root, byte_count(collective.input), size),
                rank == collective.root ? bytes_of_all(collective.outputs) : none(size));
}

Numbers bytes_of_scatter(const Collective& collective, int rank, int size) {
  return joined(rank == collective.root ? bytes_of_all(collective.inputs) : none(size),
                only_for(collective.root, byte_count(collective.output), size));
}

Numbers bytes_of_all_to_all(const Collective& collective, int /*rank*/, int size) {
  return joined(bytes_by_rank(collective.input, collective.input_splits, size),
                bytes_by_rank(collective.output, collective.output_splits, size));
}

Numbers bytes_of_all_to_all_list(const Collective& collective, int /*rank*/, int /*size*/) {
  return joined(bytes_of_all(collective.inputs), bytes_of_all(collective.outputs));
}

Signature signature_of(const Collective& collective, std::span<const int> members) {
  const auto& row = row_of(collective.kind);
  Signature signature{
      .kind = static_cast<std::uint8_t>(row.is_message ? CollectiveKind::kSend : collective.kind)};
  if (row.is_reduction) signature.op = static_cast<std::uint8_t>(collective.op);
  if (row.is_rooted) signature.root = members[static_cast<std::size_t>(collective.root)];
  if (collective.is_by_devices) signature.kind |= kByDevices;
  const auto& tensor = operand_of(collective);
  if (!tensor.defined()) return signature;
  signature.dtype = static_cast<std::int8_t>(tensor.scalar_type());
  if (row.is_message) {
    add_shape(signature, tensor.numel());
  } else if (!row.is_uneven()) {
    row.takes_lists ? add_shape(signature, elements_in(collective.outputs))
                    : add_shape(signature, tensor.sizes());
  }
  if (collective.layout != 0) signature.sizes.back() = collective.layout;
  return signature;
}

std::string describe(const Signature& signature) {
  const int kind = signature.kind & ~kByDevices;
  if (kind >= static_cast<int>(kCollectiveKinds)) return "a collective of another version of lockstep";
  const auto& row = row_of(static_cast<CollectiveKind>(kind));
  std::string text = row.is_message ? "send and recv" : row.name;
  if (row.is_reduction) text += "(" + OptionType<ReduceOp>::print(static_cast<ReduceOp>(signature.op));
  if (row.is_rooted) text += (row.is_reduction ? ", root " : "(root ") + std::to_string(signature.root);
  if (row.is_reduction || row.is_rooted) text += ")";
  if (signature.dtype < 0) return text;
  text += (row.takes_lists ? " of lists of " : " of ") + dtype_text(signature.dtype);
  if (!row.is_uneven()) text += " " + shape_text(signature);
  return text + layout_text(signature) + (kind == signature.kind ? "" : " on devices");
}

}  // namespace lockstep::detail

namespace lockstep {

std::span<const OptionName<ReduceOp>> option_names(ReduceOp) {
  static constexpr OptionName<ReduceOp> kNames[] = {
      {"sum", ReduceOp::kSum},        {"avg", ReduceOp::kAvg},        {"mean", ReduceOp::kAvg},
      {"min", ReduceOp::kMin},        {"max", ReduceOp::kMax},        {"product", ReduceOp::kProduct},
      {"bit_and", ReduceOp::kBitAnd}, {"band", ReduceOp::kBitAnd},    {"bit_or", ReduceOp::kBitOr},
      {"bor", ReduceOp::kBitOr},      {"bit_xor", ReduceOp::kBitXor}, {"bxor", ReduceOp::kBitXor}};
  return kNames;
}

}  // namespace lockstep
