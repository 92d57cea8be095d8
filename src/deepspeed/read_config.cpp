// From a file to a configuration.
#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include <lockstep/base/error.h>
#include <lockstep/deepspeed/config.h>

#include "deepspeed/hjson.h"
#include "deepspeed/json_writer.h"
#include "deepspeed/known_keys.h"
#include "deepspeed/read_config.h"
#include "deepspeed/rules.h"
#include "deepspeed/section_reader.h"

namespace lockstep {
namespace {

constexpr double kTorchAdamWDecay = 0.01;
constexpr std::streamsize kMostBytes = std::streamsize{16} << 20;

[[noreturn]] void throw_unreadable(const std::filesystem::path& file, const std::string& why) {
  throw ConfigError("deepspeed",
                    {.what = "cannot read DeepSpeed's configuration " + file.string() + ": " + why,
                     .expected = {},
                     .got = {},
                     .where = {},
                     .hint = {}});
}

/// PyTorch's AdamW has another default than DeepSpeed's.
void set_torch_decay(DeepSpeedConfig& config) {
  if (config.is_given("optimizer.params.weight_decay")) return;
  if (auto* adamw = std::get_if<deepspeed::AdamW>(&config.optimizer); adamw != nullptr && adamw->torch_adam)
    adamw->weight_decay = kTorchAdamWDecay;
  if (auto* adam = std::get_if<deepspeed::Adam>(&config.optimizer);
      adam != nullptr && adam->torch_adam && adam->adam_w_mode)
    adam->weight_decay = kTorchAdamWDecay;
}

std::string content(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) throw_unreadable(file, "no such file");
  if (std::filesystem::is_directory(status)) throw_unreadable(file, "it is a folder");
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw_unreadable(file, std::generic_category().message(errno));
  std::string text(static_cast<std::size_t>(kMostBytes) + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

}  // namespace

namespace deepspeed {

namespace {

ReadDeepSpeedConfig parsed(std::string_view text, const std::string& name,
                           const std::function<void(DeepSpeedConfig&)>& fill) {
  ReadDeepSpeedConfig read;
  auto root = parse_hjson(text, name);
  rename_keys(root, name, read.warnings);
  SectionReader reader(root, name);
  reader.read([&](OptionVisitor& visitor) { describe(visitor, read.config); });
  read.config.given = reader.take_given();
  read.config.autos = reader.take_autos();
  read.config.refused = reader.take_refused();
  set_torch_decay(read.config);
  if (fill) fill(read.config);
  check_rules(read.config);
  std::ranges::move(reader.take_warnings(), std::back_inserter(read.warnings));
  std::ranges::move(advice(read.config), std::back_inserter(read.warnings));
  return read;
}

}  // namespace

ReadDeepSpeedConfig read_config_for_run(const std::filesystem::path& file,
                                        const std::function<void(DeepSpeedConfig&)>& fill) {
  return parsed(content(file), file.string(), fill);
}

void require_usable(const DeepSpeedConfig& config, const std::string& key) {
  if (const auto found = config.refused.find(key); found != config.refused.end())
    throw ConfigError(found->second);
}

}  // namespace deepspeed

ReadDeepSpeedConfig read_deepspeed_config(const std::filesystem::path& file) {
  return parse_deepspeed_config(content(file), file.string());
}

ReadDeepSpeedConfig parse_deepspeed_config(std::string_view text, const std::string& name) {
  auto read = deepspeed::parsed(text, name, {});
  for (const auto* const key : {"optimizer", "scheduler"}) deepspeed::require_usable(read.config, key);
  return read;
}

std::string to_json(const DeepSpeedConfig& config) {
  deepspeed::JsonWriter writer;
  DeepSpeedConfig copy = config;
  describe(writer, copy);
  return writer.take();
}

}  // namespace lockstep
