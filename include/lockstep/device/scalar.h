// Scalar: a number that may still be on a device.
#pragma once

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep {

/// A number that is read when somebody asks for it: a loop that only hands it on never waits for the device
/// that computes it. Converts to double. Copies are cheap; each reads for itself. Not thread-safe.
class LOCKSTEP_API Scalar {
 public:
  Scalar(double value = 0) : value_(value) {}
  /// A tensor of one element, of which no graph is kept. What is on the CPU is read at once; what is on a
  /// device is copied there, so that it may be written to afterwards.
  Scalar(const at::Tensor& tensor);
  /// The same without a copy: nobody may write to `tensor` until value() has been called.
  static Scalar of_last_use(const at::Tensor& tensor);

  /// Waits for the device at the first call, if it has not been read.
  double value() const;
  /// The same as value(). Waits for the device.
  operator double() const { return value(); }

  /// Whether value() would wait.
  bool is_on_device() const { return tensor_.defined(); }
  /// float64 without dimensions, on its device; undefined where value() would not wait.
  at::Tensor tensor() const;

 private:
  mutable double value_ = 0;
  mutable at::Tensor tensor_;  // undefined once it has been read
};

}  // namespace lockstep
