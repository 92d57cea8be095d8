// Random numbers by StableHLO's own generator, Threefry, whose key is made of the device's state: seed and
// how many operators have drawn before.
#include <array>
#include <cmath>
#include <numbers>

#include "xla/arithmetic.h"
#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

const Shape kWord{{}, at::kLong};

Named shifted_right(Emitter& emit, const Named& word, std::int64_t bits) {
  return emit.apply("shift_right_logical", {word, emit.constant(bits, word.shape)});
}

// The mixer of SplitMix64 (Steele, Lea, Flood, 2014): neighbouring states give keys that have nothing in
// common.
Named key_of(Emitter& emit, const Named& state) {
  const auto word = [&](std::uint64_t bits) { return emit.constant(static_cast<std::int64_t>(bits), kWord); };
  const auto part = [&](std::int64_t i) { return emit.reshape(emit.slice(state, i, i + 1), {}); };
  const auto times = [&](const Named& left, const Named& right) {
    return emit.apply("multiply", {left, right});
  };
  const auto mix = [&](const Named& z, std::int64_t bits) {
    return emit.apply("xor", {z, shifted_right(emit, z, bits)});
  };
  auto z = emit.apply("add", {part(0), times(part(1), word(0x9e3779b97f4a7c15))});
  z = times(mix(z, 30), word(0xbf58476d1ce4e5b9));
  z = times(mix(z, 27), word(0x94d049bb133111eb));
  return mix(z, 31);
}

// As many random bits as `sizes` has elements, of 32 or 64 bits.
Named random_bits(Call& call, const std::vector<std::int64_t>& sizes, at::ScalarType dtype) {
  auto& emit = call.emit;
  const auto key = emit.reshape(key_of(emit, call.random_state()), {1});
  const auto counter = emit.constant(std::int64_t{0}, key.shape);
  const Shape pair{{2}, at::kLong}, state{{2}, at::kUInt64}, bits{sizes, dtype};
  const auto words = emit.emit("stablehlo.concatenate " + key.name + ", " + counter.name +
                                   ", dim = 0 : (tensor<1xi64>, tensor<1xi64>) -> " + type_text(pair),
                               pair);
  const auto given = emit.emit(
      "stablehlo.bitcast_convert " + words.name + " : (" + type_text(pair) + ") -> " + type_text(state),
      state);
  return emit
      .emit_several("stablehlo.rng_bit_generator " + given.name + ", algorithm = THREE_FRY : (" +
                        type_text(state) + ") -> (" + type_text(state) + ", " + type_text(bits) + ")",
                    {state, bits})
      .back();
}

// float64 has 53 bits, others are drawn as float32 of 24.
at::ScalarType drawn_type(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

// Numbers in [0, 1) of a shape, or in (0, 1].
Named fractions(Call& call, const Shape& shape, const Named& bits, bool without_zero = false) {
  auto& emit = call.emit;
  const bool is_double = shape.dtype == at::kDouble;
  const Arithmetic all(emit, shape);
  auto whole = emit.convert(shifted_right(emit, bits, is_double ? 11 : 8), shape.dtype);
  if (without_zero) whole = all.add(whole, all.number(1.0));
  return all.mul(whole, std::ldexp(1.0, is_double ? -53 : -24));
}

Named fractions(Call& call) {
  const Shape shape{call.out().sizes, drawn_type(call.out().dtype)};
  const auto bits = random_bits(call, shape.sizes, shape.dtype == at::kDouble ? at::kUInt64 : at::kUInt32);
  return fractions(call, shape, bits);
}

std::vector<Named> uniform(Call& call) {
  const auto drawn = fractions(call);
  const Arithmetic all(call.emit, drawn.shape);
  const double from = call.number("from"), to = call.number("to");
  return {call.emit.convert(all.add(all.mul(drawn, to - from), all.number(from)), call.out().dtype)};
}

// Box and Muller's: sqrt(-2 log u) cos(2 pi v).
std::vector<Named> normal_numbers(Call& call) {
  auto& emit = call.emit;
  const Shape shape{{call.out().numel()}, drawn_type(call.out().dtype)};
  const auto count = shape.sizes.front();
  const auto bits = random_bits(call, {2 * count}, shape.dtype == at::kDouble ? at::kUInt64 : at::kUInt32);
  const Arithmetic all(emit, shape);
  const auto radius = fractions(call, shape, emit.slice(bits, 0, count), /*without_zero=*/true);
  const auto angle = fractions(call, shape, emit.slice(bits, count, 2 * count));
  const auto length = all.sqrt(all.mul(all.log(radius), -2.0));
  const auto drawn = all.mul(length, emit.apply("cosine", {all.mul(angle, 2.0 * std::numbers::pi)}));
  const auto moved = all.add(all.mul(drawn, call.number("std")), all.number(call.number("mean")));
  return {emit.reshape(emit.convert(moved, call.out().dtype), call.out().sizes)};
}

// The probability of each element is `p`, or the element itself.
std::vector<Named> bernoulli(Call& call) {
  const auto drawn = fractions(call);
  const auto p = call.operand(call.has("p") ? "p" : "self", drawn.shape.dtype, drawn.shape.sizes);
  return {call.emit.convert(call.emit.compare("LT", drawn, p), call.out().dtype)};
}

// Whole numbers in [from, to): 64 bits modulo so small a range favour none that could be noticed.
std::vector<Named> whole_numbers(Call& call) {
  auto& emit = call.emit;
  const auto from = call.has("from") ? call.integer("from") : 0;
  const auto bits = random_bits(call, call.out().sizes, at::kUInt64);
  const auto range = emit.constant(call.integer("to") - from, bits.shape);
  const auto rest = emit.convert(emit.apply("remainder", {bits, range}), at::kLong);
  const auto moved = emit.apply("add", {rest, emit.constant(from, rest.shape)});
  return {emit.convert(moved, call.out().dtype)};
}

bool draws_floats(const Given& given) {
  const auto self = given["self"].toTensor();
  return self.numel() > 0 && at::isFloatingType(self.scalar_type());
}

bool draws_some(const Given& given) { return given["self"].toTensor().numel() > 0; }

bool has_a_range(const Given& given) {
  if (given["to"].isNone() || !draws_some(given)) return false;
  const auto from = given["from"];
  return given["to"].toInt() > (from.isNone() ? 0 : from.toInt());
}

std::vector<Named> advance(Call& call) {
  const auto more = call.emit.constants({0.0, static_cast<double>(call.list(0).front())}, call.out());
  return {call.emit.apply("add", {call.input(0), more})};
}

}  // namespace

const Row kAdvance{.name = "advance", .lower = &advance};

std::span<const Row> random_rows() {
  static const std::array rows{
      Row{.name = "aten::uniform",
          .lower = &uniform,
          .like = "self",
          .accepts = &draws_floats,
          .is_random = true},
      Row{.name = "aten::normal",
          .lower = &normal_numbers,
          .like = "self",
          .accepts = &draws_floats,
          .is_random = true},
      Row{.name = "aten::bernoulli",
          .lower = &bernoulli,
          .like = "self",
          .accepts = &draws_some,
          .is_random = true},
      Row{.name = "aten::random",
          .lower = &whole_numbers,
          .like = "self",
          .accepts = &has_a_range,
          .is_random = true},
  };
  return rows;
}

}  // namespace lockstep::xla
