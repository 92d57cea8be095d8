#include "parallel/activations/left_out_tensors.h"

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "parallel/dispatch/use_key.h"

namespace lockstep::detail {
namespace {

// Workspaces of kernels may hold bytes that nobody wrote; they are not of a floating-point type.
bool can_compare(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_floating_point() && tensor.layout() == at::kStrided &&
         tensor.is_non_overlapping_and_dense() && !tensor.key_set().has(use_key());
}

std::string kind_of(const LeftOutTensor& tensor) {
  return c10::str(tensor.dtype, ' ', at::IntArrayRef(tensor.sizes));
}

[[noreturn]] void refuse_other_run(const std::string& expected, const std::string& got) {
  throw Error(
      "parallel",
      {.what = "a checkpointed part of the model computed something else in its second run",
       .expected = expected,
       .got = got,
       .hint = "it must depend on nothing but its arguments, draw its random numbers from LibTorch's "
               "generator, and write memory by operators only; ls::checkpoint(function, arguments...) "
               "runs the function itself again"});
}

}  // namespace

std::size_t LeftOutTensors::leave_out(const at::Tensor& tensor) {
  const auto number = left_out_.size();
  left_out_.push_back({.sizes = tensor.sizes().vec(), .dtype = tensor.scalar_type()});
  if (compares_bytes_ && can_compare(tensor)) latest_.emplace_back(number, tensor);
  return number;
}

void LeftOutTensors::keep(const at::Tensor& tensor) {
  const auto number = next_++;
  if (number >= left_out_.size()) return;
  const LeftOutTensor now{.sizes = tensor.sizes().vec(), .dtype = tensor.scalar_type()};
  const auto& then = left_out_[number];
  if (now.sizes != then.sizes || now.dtype != then.dtype) refuse_other_run(kind_of(then), kind_of(now));
  again_.resize(left_out_.size());
  again_[number] = tensor;
  if (compares_bytes_ && can_compare(tensor)) latest_.emplace_back(number, tensor);
}

void LeftOutTensors::end_operator() {
  for (const auto& [number, tensor] : std::exchange(latest_, {})) {
    auto& then = left_out_[number];
    const auto now = XXH3_64bits(tensor.const_data_ptr(), tensor.nbytes());
    if (!then.checksum) then.checksum = now;
    if (then.checksum != now) refuse_other_run(kind_of(then), kind_of(then) + " of other values");
  }
}

void LeftOutTensors::expect_next(std::size_t number) const {
  if (next_ != number) refuse_other_run(c10::str(number, " tensors for backward"), std::to_string(next_));
}

at::Tensor LeftOutTensors::take(std::size_t number) {
  return number < again_.size() ? std::exchange(again_[number], at::Tensor()) : at::Tensor();
}

}  // namespace lockstep::detail
