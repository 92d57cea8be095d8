#include <lockstep/base/error.h>

#include "formats/checkpoint_files.h"
#include "fuzz/target.h"

namespace lockstep::fuzz {
namespace {

/// The manifest of one tensor in two parts, from two ranks.
std::string manifest_seed() {
  const std::string digits(32, 'a');
  const auto part = [&](const std::string& file, std::int64_t begin) {
    return detail::TensorPart{
        .file = file, .name = "w", .offset = 96, .begin = begin, .elements = 3, .checksum = digits};
  };
  detail::Manifest manifest{.info = {.epoch = 1, .global_step = 40, .world_size = 2, .strategy = "ddp"}};
  manifest.info.mesh = {{"replicate", 2}};
  manifest.info.versions = {{"lockstep", "0.1"}};
  manifest.files = {{"model-0.safetensors", {108, digits}}, {"model-1.safetensors", {108, digits}}};
  manifest.tensors = {
      {"model/w",
       {.shape = {2, 3}, .parts = {part("model-0.safetensors", 0), part("model-1.safetensors", 3)}}}};
  manifest.shared = {{"tree", {{"model", {{"tensor", "model/w"}}}}}};
  manifest.own = {nlohmann::ordered_json::object(), nlohmann::ordered_json::object()};
  return detail::to_text(manifest);
}

/// What is read is written as a text that comes back the same.
void run_manifest(std::span<const std::byte> input) try {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  const auto once = detail::to_text(detail::parse_manifest(text, "manifest.json"));
  expect(detail::to_text(detail::parse_manifest(once, "manifest.json")) == once, "wrote something else");
} catch (const CheckpointError&) {
  // refused
}

}  // namespace

Target manifest_target() {
  return {.name = "manifest",
          .seeds = {manifest_seed()},
          .tokens = {"{",
                     "}",
                     "[",
                     "]",
                     ",",
                     ":",
                     "\"\"",
                     "null",
                     "-1",
                     "0",
                     "1e999",
                     "0.5",
                     "true",
                     "9223372036854775807",
                     "18446744073709551615",
                     "4294967297",
                     "\"format_version\": 3",
                     "\"shape\"",
                     "\"parts\"",
                     "\"begin\"",
                     "\"elements\"",
                     "\"file\"",
                     "\"../x\"",
                     "\"F32\"",
                     "\"F4\"",
                     "\"world_size\"",
                     "\"mesh\"",
                     "\\u0000",
                     "\\ud800",
                     "\xff",
                     " "},
          .memory_bytes = std::size_t{64} << 10,
          .memory_per_byte = 256,  // for two manifests and their texts
          .run = run_manifest};
}

}  // namespace lockstep::fuzz
