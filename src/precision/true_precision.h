// Everything in one element type: "64-true", "bf16-true", "16-true".
#pragma once

#include <lockstep/precision/precision.h>

namespace lockstep {

class TruePrecision final : public Precision {
 public:
  TruePrecision(std::string_view name, at::ScalarType dtype) : name_(name), dtype_(dtype) {}

  std::string_view name() const override { return name_; }
  ForwardScope forward_scope() const override { return ForwardScope::of_new_tensors(dtype_); }
  at::ScalarType init_dtype() const override { return dtype_; }
  void convert_module(torch::nn::Module& module) const override;
  at::Tensor convert_input(const at::Tensor& input) const override;

 private:
  std::string_view name_;
  at::ScalarType dtype_;
};

}  // namespace lockstep
