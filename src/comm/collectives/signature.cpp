#include "comm/collectives/signature.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <sstream>

namespace lockstep::detail {
namespace {

using Numbers = std::vector<std::int64_t>;

constexpr const char* kOps[] = {"sum", "avg", "min", "max", "product", "bit_and", "bit_or", "bit_xor"};

// What ranks may have different amounts of.
bool is_uneven(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGatherList:
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kAllToAllList:
      return true;
    default:
      return false;
  }
}

bool is_reduction(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter;
}

// The tensor whose shape ranks share; of uneven kinds any that has the dtype.
const at::Tensor& typical(const Collective& collective) {
  static const at::Tensor kNone;
  switch (collective.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kSend:
    case CollectiveKind::kGather:
    case CollectiveKind::kAllGatherList:
      return collective.input;
    case CollectiveKind::kAllToAllList:
      return collective.inputs.empty() ? kNone : collective.inputs.front();
    default:
      return collective.output;
  }
}

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

Numbers none(int size) { return Numbers(static_cast<std::size_t>(size), 0); }

Numbers only_for(int member, std::int64_t amount, int size) {
  auto bytes = none(size);
  bytes[static_cast<std::size_t>(member)] = amount;
  return bytes;
}

Numbers bytes_given(const Collective& collective, int rank, int size) {
  switch (collective.kind) {
    case CollectiveKind::kAllGatherList:
      return Numbers(static_cast<std::size_t>(size), byte_count(collective.input));
    case CollectiveKind::kGather:
      return only_for(collective.root, byte_count(collective.input), size);
    case CollectiveKind::kScatter:
      return rank == collective.root ? bytes_of_all(collective.inputs) : none(size);
    case CollectiveKind::kAllToAll:
      return bytes_by_rank(collective.input, collective.input_splits, size);
    case CollectiveKind::kAllToAllList:
      return bytes_of_all(collective.inputs);
    default:
      return {};
  }
}

Numbers bytes_expected(const Collective& collective, int rank, int size) {
  switch (collective.kind) {
    case CollectiveKind::kAllGatherList:
    case CollectiveKind::kAllToAllList:
      return bytes_of_all(collective.outputs);
    case CollectiveKind::kGather:
      return rank == collective.root ? bytes_of_all(collective.outputs) : none(size);
    case CollectiveKind::kScatter:
      return only_for(collective.root, byte_count(collective.output), size);
    case CollectiveKind::kAllToAll:
      return bytes_by_rank(collective.output, collective.output_splits, size);
    default:
      return {};
  }
}

}  // namespace

Signature signature_of(const Collective& collective, std::span<const int> members) {
  const bool is_message = is_point_to_point(collective.kind);
  const auto kind = is_message ? CollectiveKind::kSend : collective.kind;
  Signature signature{.kind = static_cast<std::uint8_t>(kind)};
  if (is_reduction(kind)) signature.op = static_cast<std::uint8_t>(collective.op);
  if (is_rooted(kind)) signature.root = members[static_cast<std::size_t>(collective.root)];
  const auto& tensor = typical(collective);
  if (!tensor.defined()) return signature;
  signature.dtype = static_cast<std::int8_t>(tensor.scalar_type());
  if (is_message) {
    add_shape(signature, tensor.numel());
  } else if (!is_uneven(kind)) {
    add_shape(signature, tensor.sizes());
  }
  if (collective.layout != 0) signature.sizes.back() = collective.layout;
  return signature;
}

std::string describe(const Signature& signature) {
  const auto kind = static_cast<CollectiveKind>(signature.kind);
  std::string text = kind == CollectiveKind::kSend ? "send and recv" : name_of(kind);
  if (is_reduction(kind)) text += std::string("(") + kOps[signature.op];
  if (is_rooted(kind)) text += (is_reduction(kind) ? ", root " : "(root ") + std::to_string(signature.root);
  if (is_reduction(kind) || is_rooted(kind)) text += ")";
  if (signature.dtype < 0) return text;
  text += (takes_lists(kind) ? " of lists of " : " of ") + dtype_text(signature.dtype);
  if (!is_uneven(kind)) text += " " + shape_text(signature);
  return text + layout_text(signature);
}

Numbers bytes_moved(const Collective& collective, int rank, int size) {
  auto bytes = bytes_given(collective, rank, size);
  const auto expected = bytes_expected(collective, rank, size);
  bytes.insert(bytes.end(), expected.begin(), expected.end());
  return bytes;
}

}  // namespace lockstep::detail
