// Arithmetic: operators of StableHLO on arrays of one shape.
#pragma once

#include <string_view>
#include <vector>

#include "xla/emitter.h"

namespace lockstep::xla {

class Arithmetic {
 public:
  Arithmetic(Emitter& emit, Shape shape) : emit_(emit), shape_(std::move(shape)) {}

  const Shape& shape() const { return shape_; }
  Named number(double value) const { return emit_.constant(value, shape_); }
  /// Of the shape's type, broadcast as LibTorch does.
  Named spread(const Named& array) const {
    return emit_.broadcast(emit_.convert(array, shape_.dtype), shape_.sizes);
  }
  /// The same, where dimension i of the array is dimension `dimensions[i]`.
  Named spread(const Named& array, const std::vector<std::int64_t>& dimensions) const {
    return emit_.broadcast_to(emit_.convert(array, shape_.dtype), shape_.sizes, dimensions);
  }

  Named add(const Named& left, const Named& right) const { return emit_.apply("add", {left, right}); }
  Named sub(const Named& left, const Named& right) const { return emit_.apply("subtract", {left, right}); }
  Named mul(const Named& left, const Named& right) const { return emit_.apply("multiply", {left, right}); }
  Named mul(const Named& left, double right) const { return mul(left, number(right)); }
  Named div(const Named& left, const Named& right) const { return emit_.apply("divide", {left, right}); }
  Named max(const Named& left, const Named& right) const { return emit_.apply("maximum", {left, right}); }
  Named min(const Named& left, const Named& right) const { return emit_.apply("minimum", {left, right}); }
  Named pow(const Named& base, const Named& exponent) const { return emit_.apply("power", {base, exponent}); }
  Named sqrt(const Named& array) const { return emit_.apply("sqrt", {array}); }
  Named rsqrt(const Named& array) const { return emit_.apply("rsqrt", {array}); }
  Named exp(const Named& array) const { return emit_.apply("exponential", {array}); }
  Named log(const Named& array) const { return emit_.apply("log", {array}); }
  /// log(1 + x)
  Named log1p(const Named& array) const { return emit_.apply("log_plus_one", {array}); }
  /// exp(x) - 1
  Named expm1(const Named& array) const { return emit_.apply("exponential_minus_one", {array}); }
  Named neg(const Named& array) const { return emit_.apply("negate", {array}); }
  Named abs(const Named& array) const { return emit_.apply("abs", {array}); }
  Named sign(const Named& array) const { return emit_.apply("sign", {array}); }
  /// 1 / (1 + exp(-x))
  Named sigmoid(const Named& array) const { return emit_.apply("logistic", {array}); }
  Named greater(const Named& left, const Named& right) const { return emit_.compare("GT", left, right); }
  Named select(const Named& condition, const Named& yes, const Named& no) const {
    return emit_.select(condition, yes, no);
  }

 private:
  Emitter& emit_;
  Shape shape_;
};

}  // namespace lockstep::xla
