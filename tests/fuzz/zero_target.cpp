#include <lockstep/base/error.h>

#include "formats/zero_checkpoint.h"
#include "fuzz/target.h"

namespace lockstep::fuzz {
namespace {

using pickle::Dict;
using pickle::List;
using pickle::Value;

constexpr std::size_t kElements = 6;  // of each storage

/// A row of `elements` in a storage of its own.
pickle::Tensor row(const std::string& key, std::int64_t elements) {
  auto storage = std::make_shared<const pickle::Storage>(
      pickle::Storage{.key = key, .bytes = 4 * kElements, .dtype = pickle::Dtype::kF32});
  return {.storage = storage, .dtype = pickle::Dtype::kF32, .offset = 0, .shape = {elements}, .stride = {1}};
}

Dict dict(std::initializer_list<std::pair<Value, Value>> entries) { return {.entries = entries}; }

Dict model() {
  const auto shapes = dict(
      {{"w", pickle::Tuple{{std::int64_t{2}, std::int64_t{2}}}}, {"b", pickle::Tuple{{std::int64_t{1}}}}});
  return dict({{"module", dict({{"shift", row("0", 2)}})},
               {"buffer_names", List{"shift"}},
               {"param_shapes", List{shapes}},
               {"frozen_param_shapes", dict({{"f", pickle::Tuple{{std::int64_t{3}}}}})},
               {"frozen_param_fragments", dict({{"f", row("1", 3)}})},
               {"shared_params", dict({{"tied", "w"}})}});
}

Dict optimizer() {
  return dict({{"optimizer_state_dict",
                dict({{"zero_stage", std::int64_t{2}},
                      {"partition_count", std::int64_t{1}},
                      {"param_alignment_paddings", List{List{std::int64_t{1}, std::int64_t{0}}}},
                      {"single_partition_of_fp32_groups", List{row("0", 6)}},
                      {"fp32_flat_groups", List{row("0", 3), row("1", 2)}}})}});
}

/// An archive around `pickle`, with the storages that it names; the checksums are right.
std::string checkpoint_file_of(std::span<const std::byte> pickle) {
  std::string file;
  zip::Writer writer([&](std::span<const std::byte> bytes) {
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  writer.add("a/data.pkl", pickle);
  writer.add("a/data/0", std::string(4 * kElements, 'x'));
  writer.add("a/data/1", std::string(4 * kElements, 'y'));
  writer.finish();
  return file;
}

/// Every byte of every tensor is there, and as many as its shape says.
void walk(const detail::ZeroCheckpoint& checkpoint) {
  for (const auto& tensor : zero_weights(checkpoint)) {
    std::uint64_t elements = 1;
    for (const auto extent : tensor.shape) elements *= static_cast<std::uint64_t>(extent);
    unsigned sum = 0;
    std::uint64_t bytes = 0;
    detail::write_as_float32(tensor.elements, [&](std::span<const std::byte> run) {
      bytes += run.size();
      for (const auto byte : run) sum += static_cast<unsigned>(byte);
    });
    const auto expected = elements * dtype_bytes(detail::as_float32(tensor.elements.dtype));
    expect(bytes == expected && sum <= 255 * bytes, "lost elements");
  }
}

void run_as(const std::string& model, const std::string& optimizer, int stage) try {
  detail::ZeroFiles files{.folder = "f", .stage = stage, .models = {}, .optimizers = {}};
  files.models.emplace_back("model", bytes_of(model));
  files.optimizers.emplace_back("optimizer", bytes_of(optimizer));
  walk(detail::ZeroCheckpoint(std::move(files)));
} catch (const CheckpointError& error) {
  expect(*error.what() != '\0', "gave no reason");
}

/// The input as one of the two files, of a checkpoint of one of the stages.
void run_zero(std::span<const std::byte> input) {
  static const auto model_pickle = pickle::write(model()), optimizer_pickle = pickle::write(optimizer());
  static const std::string model_file = checkpoint_file_of(bytes_of(model_pickle));
  static const std::string optimizer_file = checkpoint_file_of(bytes_of(optimizer_pickle));
  const auto file = checkpoint_file_of(input);
  const int stage = static_cast<int>(input.size() / 2 % 4);
  if (input.size() % 2 == 0) return run_as(file, optimizer_file, stage);
  run_as(model_file, file, stage);
}

}  // namespace

Target zero_target() {
  return {.name = "zero",
          .seeds = {pickle::write(model()), pickle::write(optimizer())},
          .tokens = {"}", "]", ")", "\x85", "\x86", "K\x01", "K\x02", "K\x06", "J\xff\xff\xff\x7f", "N", "s",
                     "a", "u"},
          .memory_bytes = std::size_t{256} << 10,
          .memory_per_byte = 512,
          .run = run_zero};
}

}  // namespace lockstep::fuzz
