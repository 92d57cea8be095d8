// Emitter: writes StableHLO in its textual form.
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "xla/graph.h"

namespace lockstep::xla {

/// The name of an array in the text, and its shape.
struct Named {
  std::string name = {};
  Shape shape = {};
  /// The flat array, of `whole_size` elements, of which it is those from `begin` on, in their order; empty:
  /// of none.
  std::string whole = {};
  std::int64_t whole_size = 0, begin = 0;
  bool is_of_arena = false;  ///< what lies between it and its neighbours in `whole` is nobody's

  std::int64_t end() const { return begin + shape.numel(); }
};

/// Which slices of an array are read or written. Each takes one element along `dimensions`, at the position
/// that a row of indices says, and all of the others.
struct Slices {
  std::vector<std::int64_t> dimensions = {};  ///< of the array, in the order of a row
  std::vector<std::int64_t> windows = {};  ///< dimensions of all slices together that come from one of them
};

class Emitter {
 public:
  /// `name = right_hand_side`; returns the new name with `shape`.
  Named emit(const std::string& right_hand_side, Shape shape);

  /// The same for an operation with several results.
  std::vector<Named> emit_several(const std::string& right_hand_side, std::vector<Shape> shapes);

  /// An array of those numbers, in row-major order.
  Named constants(const std::vector<double>& values, const Shape& shape);
  /// An array that is `value` everywhere.
  Named constant(double value, const Shape& shape);
  Named constant(std::int64_t value, const Shape& shape);
  /// Its elements are their position along `dimension`.
  Named iota(std::int64_t dimension, const Shape& shape);

  /// The same elements in another type, or in another shape of as many.
  Named convert(const Named& array, at::ScalarType dtype);
  Named reshape(const Named& array, const std::vector<std::int64_t>& sizes);
  /// Broadcast as LibTorch does: dimensions are aligned at the end.
  Named broadcast(const Named& array, const std::vector<std::int64_t>& sizes);
  /// Dimension i of the array becomes dimension `dimensions[i]` of the result.
  Named broadcast_to(const Named& array, const std::vector<std::int64_t>& sizes,
                     const std::vector<std::int64_t>& dimensions);
  Named transpose(const Named& array, const std::vector<std::int64_t>& permutation);
  /// Elements [begin, end) of a flat array. It and its reshape() know where they come from.
  Named slice(const Named& array, std::int64_t begin, std::int64_t end);

  /// Each `step`-th of them.
  Named slice(const Named& array, std::int64_t begin, std::int64_t end, std::int64_t step);

  /// One behind the other along a dimension.
  Named concatenate(const std::vector<Named>& arrays, std::int64_t dimension);
  /// With so many zeros in front of it and behind it along a dimension; a negative number takes elements
  /// away.
  Named pad(const Named& array, std::int64_t dimension, std::int64_t before, std::int64_t behind);

  /// stablehlo.NAME of arrays of one shape, whose result has that shape, too.
  Named apply(std::string_view name, const std::vector<Named>& arrays);
  /// Numbers compared by EQ, NE, LT, LE, GT or GE.
  Named compare(std::string_view direction, const Named& left, const Named& right);
  Named select(const Named& condition, const Named& yes, const Named& no);
  /// What stablehlo.`name` (add, maximum, minimum, and, or) does not change when it is reduced with it.
  Named neutral(std::string_view name, const Shape& shape);
  /// stablehlo.`name` (add, maximum) over `dimensions`, which are dropped. Sums of 16 bits are taken in
  /// float32.
  Named reduce(std::string_view name, const Named& array, std::vector<std::int64_t> dimensions);
  /// Products of matrices, which may have equal leading dimensions. Those of 16 bits are float32.
  Named product(const Named& left, const Named& right);
  /// The same in the type of the matrices.
  Named matmul(const Named& left, const Named& right) {
    return convert(product(left, right), left.shape.dtype);
  }

  /// The slices at `indices`, whose last dimension is their rows. The nearest for one that is not there.
  Named gather(const Named& array, const Named& indices, const Slices& slices, const Shape& shape);
  /// `array` with slices replaced by `updates`, or with these added to them. One that is not there is left
  /// out.
  Named scatter(const Named& array, const Named& indices, const Slices& slices, const Named& updates,
                bool adds);

  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  int names_ = 0;
};

/// A number as StableHLO writes it for that type.
std::string literal(double value, at::ScalarType dtype);
/// "[1, 2]"
std::string list_text(const std::vector<std::int64_t>& numbers);

}  // namespace lockstep::xla
