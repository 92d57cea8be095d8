#include "xla/graph.h"

#include <algorithm>
#include <array>
#include <utility>

#include <lockstep/base/error.h>

namespace lockstep::xla {
namespace {

struct TypeName {
  at::ScalarType dtype;
  const char* text;
  PJRT_Buffer_Type type;
};

constexpr std::array kTypes{TypeName{at::kFloat, "f32", PJRT_Buffer_Type_F32},
                            TypeName{at::kDouble, "f64", PJRT_Buffer_Type_F64},
                            TypeName{at::kHalf, "f16", PJRT_Buffer_Type_F16},
                            TypeName{at::kBFloat16, "bf16", PJRT_Buffer_Type_BF16},
                            TypeName{at::kLong, "i64", PJRT_Buffer_Type_S64},
                            TypeName{at::kInt, "i32", PJRT_Buffer_Type_S32},
                            TypeName{at::kShort, "i16", PJRT_Buffer_Type_S16},
                            TypeName{at::kChar, "i8", PJRT_Buffer_Type_S8},
                            TypeName{at::kByte, "ui8", PJRT_Buffer_Type_U8},
                            TypeName{at::kUInt32, "ui32", PJRT_Buffer_Type_U32},
                            TypeName{at::kUInt64, "ui64", PJRT_Buffer_Type_U64},
                            TypeName{at::kBool, "i1", PJRT_Buffer_Type_PRED}};

const TypeName* name_of(at::ScalarType dtype) {
  const auto* const found = std::ranges::find(kTypes, dtype, &TypeName::dtype);
  return found == kTypes.end() ? nullptr : found;
}

const TypeName& type_of(at::ScalarType dtype) {
  if (const auto* const found = name_of(dtype)) return *found;
  throw Error("xla", {.what = "tensors of this element type cannot be on an XLA device",
                      .expected = "a floating type, an integer or bool",
                      .got = c10::toString(dtype)});
}

}  // namespace

std::int64_t Shape::numel() const {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return count;
}

std::string type_text(const Shape& shape) {
  std::string text = "tensor<";
  for (const auto size : shape.sizes) text += std::to_string(size) + "x";
  return text + type_of(shape.dtype).text + ">";
}

bool has_type(at::ScalarType dtype) { return name_of(dtype) != nullptr; }
PJRT_Buffer_Type buffer_type(at::ScalarType dtype) { return type_of(dtype).type; }

const Shape& Value::shape() const { return node->outputs[output]; }

Value array_value(std::shared_ptr<Buffer> buffer, Shape shape, bool is_shared) {
  auto node = std::make_shared<Node>();
  node->outputs.push_back(std::move(shape));
  node->layout = buffer->layout();
  node->buffer = std::move(buffer);
  node->is_shared = is_shared;
  return {std::move(node), 0};
}

Value made_by(const Row& row, std::vector<Value> inputs, Shape shape,
              std::vector<std::vector<std::int64_t>> lists) {
  auto node = std::make_shared<Node>();
  node->row = &row;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    node->arguments.push_back({.first = static_cast<int>(i), .count = 1});
  for (auto& list : lists) node->arguments.push_back({.value = c10::IValue(std::move(list))});
  node->inputs = std::move(inputs);
  node->outputs.push_back(std::move(shape));
  return {std::move(node), 0};
}

}  // namespace lockstep::xla
