#include "formats/zero_steps.h"

#include <cstring>
#include <string>

#include "formats/in_quotes.h"
#include "formats/zero_checkpoint.h"

namespace lockstep::detail {
namespace {

/// The number in a tensor of one element.
std::optional<double> number_of(const OpenedTorchFile& file, const pickle::Tensor& tensor) {
  const auto elements = elements_of(file, tensor);
  std::optional<double> number;
  write_as_float32(elements, [&](std::span<const std::byte> bytes) {
    if (as_float32(elements.dtype) != safetensors::Dtype::kF32 || bytes.size() != sizeof(float)) return;
    float value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    number = value;
  });
  return number;
}

const pickle::Dict* dict_in(const pickle::Dict& dict, const char* key) {
  const auto* value = dict.find(key);
  return value == nullptr ? nullptr : value->as<pickle::Dict>();
}

/// Of rows that say it.
std::unordered_map<std::int64_t, double> steps_in(const OpenedTorchFile& file, int stage) {
  std::unordered_map<std::int64_t, double> steps;
  const auto* inner = dict_in(zero_state(file), inner_key(stage));
  const auto* state = inner == nullptr ? nullptr : dict_in(*inner, "state");
  if (state == nullptr) return steps;
  for (const auto& [number, row] : rows_in(*state))
    if (const auto step = number_in(file, row->find("step"))) steps.emplace(number, *step);
  return steps;
}

}  // namespace

std::optional<double> number_in(const OpenedTorchFile& file, const pickle::Value* value) {
  if (value == nullptr) return std::nullopt;
  if (const auto* real = value->as<double>()) return *real;
  if (const auto* integer = value->as<std::int64_t>()) return static_cast<double>(*integer);
  const auto* tensor = value->as<pickle::Tensor>();
  return tensor == nullptr ? std::nullopt : number_of(file, *tensor);
}

const char* inner_key(int stage) { return stage == 3 ? "optimizer_state_dict" : "base_optimizer_state"; }

std::unordered_map<std::int64_t, const pickle::Dict*> rows_in(const pickle::Dict& state) {
  std::unordered_map<std::int64_t, const pickle::Dict*> rows;
  for (const auto& [id, value] : state.entries) {
    const auto* number = id.as<std::int64_t>();
    const auto* held = value.as<pickle::Dict>();
    if (number != nullptr && held != nullptr) rows.try_emplace(*number, held);
  }
  return rows;
}

void check_steps(const ZeroFiles& files) {
  const auto& first = files.optimizers.front();
  const auto expected = steps_in(first, files.stage);
  for (const auto& file : files.optimizers) {
    for (const auto& [row, step] : steps_in(file, files.stage)) {
      const auto found = expected.find(row);
      if (found == expected.end() || found->second == step) continue;
      refuse_key(file, "step of row " + std::to_string(row),
                 "that of " + in_quotes(first.where()) + ", as all ranks save at once",
                 "another number: were the files all saved at the same step?");
    }
  }
}

}  // namespace lockstep::detail
