#include <lockstep/device/scalar.h>

#include <ATen/core/grad_mode.h>

namespace lockstep {
namespace {

// item() goes through the dispatcher; a float on the CPU can simply be read.
double read(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat ? *tensor.const_data_ptr<float>()
                                                               : tensor.item<double>();
}

}  // namespace

Scalar::Scalar(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (tensor.is_cpu())
    value_ = read(tensor);
  else
    tensor_ =
        tensor.detach().reshape(at::IntArrayRef()).to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
}

Scalar Scalar::of_last_use(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  Scalar scalar;
  scalar.tensor_ = tensor.detach();
  return scalar;
}

at::Tensor Scalar::tensor() const {
  const at::NoGradGuard no_grad;
  return tensor_.defined() ? tensor_.reshape(at::IntArrayRef()).to(at::kDouble) : at::Tensor();
}

double Scalar::value() const {
  if (tensor_.defined()) {
    value_ = read(tensor_);
    tensor_.reset();
  }
  return value_;
}

}  // namespace lockstep
