// Functions of tensors on the device, beside the same on the CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>

namespace lockstep::test {

using Tensors = std::vector<at::Tensor>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Function = std::function<at::Tensor(const Tensors&)>;

inline const at::Device kDevice(at::kXLA, 0);

struct Case {
  std::string name;
  Tensors inputs;
  Function function;
};

Tensors on_device(const Tensors& tensors);

/// Expects equal shapes and types, and values that differ by 1e-5 of themselves, or 1e-6 of the largest.
void expect_close(const at::Tensor& got, const at::Tensor& expected, const std::string& what);

/// Calls of operators without a lowering so far.
std::int64_t fallbacks();

at::Tensor normal(at::IntArrayRef sizes);
/// `count` integers in [0, most).
at::Tensor classes(std::int64_t count, std::int64_t most);

/// Expects that the function has the values of the CPU on the device, and that no operator went there.
void expect_as_on_cpu(const Case& tested);
/// The same of the gradients of all inputs of floating type.
void expect_gradients_as_on_cpu(const Case& tested);

}  // namespace lockstep::test
