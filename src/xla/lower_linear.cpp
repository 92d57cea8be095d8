// Products of matrices, sums and means, and arrays put together.
#include <array>

#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

std::vector<Named> mm(Call& call) { return {call.emit.matmul(call.tensor("self"), call.tensor("mat2"))}; }

Named scaled(Call& call, const Named& array, double factor) {
  if (factor == 1.0) return array;
  return call.emit.apply("multiply", {array, call.emit.constant(factor, array.shape)});
}

// What is of 16 bits is rounded once, as by LibTorch's kernels.
std::vector<Named> addmm(Call& call) {
  const double alpha = call.number("alpha"), beta = call.number("beta");
  auto sum = scaled(call, call.emit.product(call.tensor("mat1"), call.tensor("mat2")), alpha);
  if (beta != 0.0) {
    const auto self = scaled(call, call.operand("self", sum.shape.dtype, sum.shape.sizes), beta);
    sum = call.emit.apply("add", {self, sum});
  }
  return {call.emit.convert(sum, call.out().dtype)};
}

Named sum_of(Call& call) {
  const auto self = call.emit.convert(call.tensor("self"), call.out().dtype);
  return call.emit.reduce("add", self, call.dimensions("dim", self.shape.sizes.size()));
}

std::vector<Named> sum(Call& call) { return {call.emit.reshape(sum_of(call), call.out().sizes)}; }

std::vector<Named> mean(Call& call) {
  const auto total = sum_of(call);
  const auto count =
      static_cast<double>(call.tensor("self").shape.numel()) / static_cast<double>(total.shape.numel());
  const auto quotient = call.emit.apply("divide", {total, call.emit.constant(count, total.shape)});
  return {call.emit.reshape(quotient, call.out().sizes)};
}

std::vector<Named> cat(Call& call) {
  std::vector<Named> parts;
  for (const auto& part : call.tensors("tensors")) parts.push_back(call.emit.convert(part, call.out().dtype));
  return {call.emit.concatenate(parts, call.dimensions("dim", call.out().sizes.size()).front())};
}

// One over the number of elements in place of a division by zero.
bool has_elements(const Given& given) { return given["self"].toTensor().numel() > 0; }

// Empty tensors of another rank are left out by LibTorch.
bool are_of_one_rank(const Given& given) {
  const auto tensors = given["tensors"].toTensorVector();
  for (const auto& tensor : tensors)
    if (tensor.dim() != tensors.front().dim() || tensor.dim() == 0) return false;
  return !tensors.empty();
}

}  // namespace

std::span<const Row> linear_rows() {
  static const std::array rows{
      Row{.name = "aten::mm", .lower = &mm},
      Row{.name = "aten::bmm", .lower = &mm},
      Row{.name = "aten::addmm", .lower = &addmm},
      Row{.name = "aten::sum", .lower = &sum},
      Row{.name = "aten::mean", .lower = &mean, .accepts = &has_elements},
      Row{.name = "aten::cat", .lower = &cat, .accepts = &are_of_one_rank},
  };
  return rows;
}

}  // namespace lockstep::xla
