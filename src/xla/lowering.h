// How operators of LibTorch become StableHLO: one row for each, by its name without overload and without the
// underscore of those that write to their first argument.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/function_schema.h>

#include "xla/arena.h"

namespace lockstep::xla {

/// One operator of the graph while it is lowered. Arguments are found by their names.
class Call {
 public:
  Call(Emitter& emitter, const Node& node, const std::vector<Named>& inputs)
      : emit(emitter), node_(node), inputs_(inputs) {}

  Emitter& emit;

  const Shape& out(std::size_t number = 0) const { return node_.outputs[number]; }
  std::size_t outputs() const { return node_.outputs.size(); }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Whether a tensor, or a number that is given as an array, is there.
  bool is_array(std::string_view name) const;
  const Named& tensor(std::string_view name) const;
  std::vector<Named> tensors(std::string_view name) const;
  /// A tensor or number in that type, broadcast to `sizes`.
  Named operand(std::string_view name, at::ScalarType dtype, const std::vector<std::int64_t>& sizes) const;
  /// A number that is no array.
  double number(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::string text(std::string_view name) const;
  /// Dimensions, counted from 0 on for a tensor of `rank`; all of them for an empty list and for none.
  std::vector<std::int64_t> dimensions(std::string_view name, std::size_t rank) const;
  std::vector<std::int64_t> integers(std::string_view name) const;
  const c10::IValue& value(std::string_view name) const;
  /// The gradients of `output_mask`, which asks for some of three, in the types and shapes of the results.
  std::vector<Named> asked_for(const std::array<Named, 3>& gradients) const;
  /// The lists of an operator of ours (made_by()).
  std::vector<std::int64_t> list(std::size_t number) const;
  const Named& input(std::size_t number) const { return inputs_[number]; }
  const Named& random_state() const { return inputs_.back(); }

 private:
  const Argument* find(std::string_view name) const;
  const Argument& at(std::string_view name) const;

  const Node& node_;
  const std::vector<Named>& inputs_;
};

using Lower = std::vector<Named> (*)(Call&);
/// Of the results of an operator; nothing for one that is not asked for.
using Shapes = std::vector<std::optional<Shape>>;

/// The arguments of a call, by the names of its schema.
struct Given {
  const c10::FunctionSchema& schema;
  std::span<const c10::IValue> values;

  /// None where the operator has no such argument.
  c10::IValue operator[](std::string_view name) const;
  /// Of a tensor that is there.
  Shape shape(std::string_view name) const;
  /// Whether a tensor is there.
  bool has(std::string_view name) const;
  /// Those that `output_mask` asks for.
  Shapes asked_for(Shapes gradients) const;
};

struct Row {
  std::string_view name;  ///< "aten::add"
  Lower lower;
  /// The argument whose shape and type the result has; empty: LibTorch's kernel for Meta tells.
  std::string_view like = {};
  // The result is as large as the arguments together, where LibTorch has no kernel for Meta:
  bool is_truth = false;   ///< of bool, from `self` and `other`
  bool is_choice = false;  ///< from `condition`, `self` and `other`
  /// The results, where LibTorch has no kernel for Meta. None: LibTorch is asked.
  Shapes (*shapes)(const Given&) = nullptr;
  /// Numbers that are given as arrays, so that another value is no other program.
  std::vector<std::string_view> numbers = {};
  /// Whether calls with these arguments are lowered; the others run on the CPU. Null: all.
  bool (*accepts)(const Given&) = nullptr;
  /// The arguments that it writes, where its schema does not say so. What is lowered gives them first, then
  /// the results.
  std::vector<std::string_view> written = {};
  /// Whether calls with these arguments write them. Null: all.
  bool (*writes)(const Given&) = nullptr;
  bool is_optimizer_step = false;  ///< its numbers stay float64
  bool is_random = false;          ///< its last input is the state of a generator (generator.h)
};

/// The rows of each file.
std::span<const Row> activation_rows();
std::span<const Row> convolution_rows();
std::span<const Row> index_rows();
std::span<const Row> linear_rows();
std::span<const Row> loss_rows();
std::span<const Row> norm_rows();
std::span<const Row> optimizer_rows();
std::span<const Row> pointwise_rows();
std::span<const Row> pool_rows();
std::span<const Row> random_rows();
std::span<const Row> reduction_rows();
std::span<const Row> sort_rows();
std::span<const Row> subscript_rows();

/// The row of an operator; null where it has none. `name` as in "aten::add_".
const Row* find_row(std::string_view name);

/// Sums of squares of each kGradNormBlock elements of an array, as block_square_sums() of optim/grad_norm.h.
Named block_square_sums(Emitter& emit, const Named& array);
/// How many of them there are.
std::int64_t square_sum_blocks(std::int64_t elements);

/// Operators of our own, which read and write views.
extern const Row kReshape;       ///< the same elements in the order of memory
extern const Row kConvert;       ///< to another type, and broadcast
extern const Row kFill;          ///< zeros
extern const Row kAdvance;       ///< {seed, n} and a list: n + its number
extern const Row kReadStrided;   ///< lists: strides, {offset}
extern const Row kWriteStrided;  ///< inputs: flat memory, values; lists: strides, {offset}

/// What kWriteStrided writes, where its elements lie one behind the other.
std::optional<FlatWrite> flat_write(Call& call);

}  // namespace lockstep::xla
