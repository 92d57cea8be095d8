// The graph that records operators of a device: what its tensors will hold once it has run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include "xla/buffer.h"

namespace lockstep::xla {

struct Row;

/// Of a dense array.
struct Shape {
  std::vector<std::int64_t> sizes = {};
  at::ScalarType dtype = at::kFloat;

  std::int64_t numel() const;
  bool operator==(const Shape&) const = default;
};

/// As StableHLO writes it: "tensor<2x3xf32>".
std::string type_text(const Shape& shape);
/// Whether StableHLO has the type, and PJRT's name of it. @throws Error for others
bool has_type(at::ScalarType dtype);
PJRT_Buffer_Type buffer_type(at::ScalarType dtype);

struct Node;

/// One result of a node.
struct Value {
  std::shared_ptr<Node> node = {};
  std::size_t output = 0;

  explicit operator bool() const { return node != nullptr; }
  const Shape& shape() const;
  bool operator==(const Value&) const = default;
};

/// An argument of an operator: tensors, which are inputs `first` to `first + count - 1` of its node, or a
/// value. A list in which some may be missing has the places of the others as its value.
struct Argument {
  int first = -1;
  int count = 0;
  c10::IValue value = {};
};

/// An operator that is to run, or an array that is there.
struct Node {
  const Row* row = nullptr;                     ///< how it is lowered; null for an array
  const c10::FunctionSchema* schema = nullptr;  ///< names its arguments; null for operators of ours
  std::vector<Value> inputs = {};
  std::vector<Argument> arguments = {};
  std::vector<Shape> outputs = {};
  std::shared_ptr<Buffer> buffer = {};  ///< of an array; null for one that a captured step is given
  int holders = 0;                      ///< tensors that hold the array
  bool is_shared = false;               ///< the array is used elsewhere, too, and must not be overwritten
  Layout layout = Layout::kCopies;      ///< of an array

  bool is_array() const { return row == nullptr; }
};

/// An array that is there.
Value array_value(std::shared_ptr<Buffer> buffer, Shape shape, bool is_shared = false);
/// The result of an operator with one, without arguments but tensors and lists of integers.
Value made_by(const Row& row, std::vector<Value> inputs, Shape shape,
              std::vector<std::vector<std::int64_t>> lists = {});

}  // namespace lockstep::xla
