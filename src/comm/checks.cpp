#include "comm/checks.h"

#include <array>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

constexpr std::array kDtypes = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                                at::kInt,    at::kShort, at::kChar, at::kByte,     at::kBool};

[[noreturn]] void refuse(const Collective& collective, const std::string& what, const std::string& expected,
                         const std::string& got, const std::string& hint = "") {
  throw CommError("comm", {.what = std::string(name_of(collective.kind)) + ": " + what,
                           .expected = expected,
                           .got = got,
                           .where = "",
                           .hint = hint});
}

void check_tensor(const Collective& collective, const at::Tensor& tensor) {
  if (!tensor.defined()) refuse(collective, "tensor is not usable", "a defined tensor", "an undefined one");
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided) {
    refuse(collective, "tensor is not usable", "a dense CPU tensor", tensor.toString());
  }
  if (std::find(kDtypes.begin(), kDtypes.end(), tensor.scalar_type()) == kDtypes.end()) {
    refuse(collective, "dtype is not supported",
           "float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8 or bool",
           c10::toString(tensor.scalar_type()));
  }
}

void check_reduce_op(const Collective& collective) {
  const auto dtype = collective.output.scalar_type();
  if (collective.op == ReduceOp::kAvg && !at::isFloatingType(dtype)) {
    refuse(collective, "kAvg needs a floating-point tensor", "a floating-point dtype", c10::toString(dtype),
           "sum it and divide, or convert it first");
  }
  if (dtype == at::kBool && collective.op != ReduceOp::kMin && collective.op != ReduceOp::kMax) {
    refuse(collective, "bool tensors have no arithmetic", "kMin (all ranks) or kMax (any rank)", "another op",
           "convert it to int64 to count");
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

}  // namespace

void check_collective(const Collective& collective, int size) {
  if (collective.kind == CollectiveKind::kBarrier) return;
  check_tensor(collective, collective.output);
  if (collective.kind == CollectiveKind::kBroadcast && (collective.root < 0 || collective.root >= size)) {
    refuse(collective, "root is no rank of the group", "0 to " + std::to_string(size - 1),
           std::to_string(collective.root));
  }
  if (collective.kind == CollectiveKind::kAllGather || collective.kind == CollectiveKind::kReduceScatter) {
    check_tensor(collective, collective.input);
    const bool gathers = collective.kind == CollectiveKind::kAllGather;
    check_sizes(collective, gathers ? collective.output : collective.input,
                gathers ? collective.input : collective.output, size);
  }
  if (collective.kind == CollectiveKind::kAllReduce || collective.kind == CollectiveKind::kReduceScatter) {
    check_reduce_op(collective);
  }
}

}  // namespace lockstep::detail
