// Reads DeepSpeed's configuration from a file, and single values of it by their dotted keys.
#include "deepspeed/read_config.h"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/option_visitor.h>
#include <lockstep/deepspeed/config.h>

#include "base/option_keys.h"
#include "deepspeed/hjson.h"
#include "deepspeed/section_reader.h"

namespace lockstep::deepspeed {
namespace {

// Visits a described struct and makes an object of its members, one to a line. What has no value is left
// out.
class JsonWriter final : public OptionVisitor {
 public:
  /// The object of what has been visited.
  std::string take();

  void visit_field(OptionField& field) override;
  void visit_group(std::string_view name, std::string_view help, const Members& members) override;
  void visit_choice(OptionChoice& choice) override;

 private:
  void add(std::string_view name, std::string_view value);
  void add_object(std::string_view name, const Members& members);

  std::string text_ = "{";
  int depth_ = 1;
  bool is_first_ = true;
};

constexpr std::string_view kNone = "none";

bool is_list(const std::string& type) { return type.starts_with("list of "); }

bool is_text(std::string_view type) {
  if (type.starts_with("list of ")) type.remove_prefix(8);
  return type.starts_with("text") || type.starts_with("path") || type.starts_with("name");
}

/// What follows a backslash in YAML, as JSON has it.
std::string_view escape(char after) { return after == 'x' ? "\\u00" : after == 'u' ? "\\u" : "\\"; }

/// Words and quoted texts of YAML, alone or in a list, as texts of JSON.
std::string json_of_texts(std::string_view yaml) {
  std::string json;
  bool in_quotes = false, in_word = false;
  for (std::size_t i = 0; i < yaml.size(); ++i) {
    const char c = yaml[i];
    const bool separates = !in_quotes && (c == '[' || c == ']' || c == ',' || c == ' ');
    if (!in_quotes && c != '"' && separates == in_word) {
      json += '"';
      in_word = !separates;
    }
    if (in_quotes && c == '\\') {
      json += escape(yaml[++i]);
      if (yaml[i] == 'x' || yaml[i] == 'u') continue;
      json += yaml[i];
      continue;
    }
    if (c == '"') in_quotes = !in_quotes;
    json += c;
  }
  return in_word ? json + '"' : json;
}

/// `yaml`, which is a value of `type`.
std::string json_of(const std::string& yaml, const std::string& type) {
  if (yaml == "auto") return "\"auto\"";
  if (is_text(type)) return json_of_texts(yaml);
  const bool is_single = is_list(type) && yaml.find(',') == std::string::npos;
  const bool is_quoted = yaml.starts_with('"');  // numbers side by side
  return is_single || is_quoted ? yaml.substr(1, yaml.size() - 2) : yaml;
}

std::string JsonWriter::take() { return std::exchange(text_, "{") + "\n}\n"; }

void JsonWriter::visit_field(OptionField& field) {
  const auto value = field.print();
  if (value != "null" && value != "[]") add(field.name(), json_of(value, field.info().type));
}

void JsonWriter::visit_group(std::string_view name, std::string_view, const Members& members) {
  add_object(name, members);
}

void JsonWriter::visit_choice(OptionChoice& choice) {
  const auto held = choice.held();
  if (!held || choice.rows()[*held].name == kNone) return;
  add_object(choice.name(), [&](OptionVisitor&) {
    add("type", '"' + choice.rows()[*held].name + '"');
    add_object("params", [&](OptionVisitor& visitor) { choice.describe_held(visitor); });
  });
}

void JsonWriter::add(std::string_view name, std::string_view value) {
  text_ += std::string(std::exchange(is_first_, false) ? "\n" : ",\n") +
           std::string(2 * static_cast<std::size_t>(depth_), ' ') + '"' + std::string(name) + "\": ";
  text_ += value;
}

void JsonWriter::add_object(std::string_view name, const Members& members) {
  add(name, "{");
  is_first_ = true;
  ++depth_;
  members(*this);
  --depth_;
  const bool is_empty = std::exchange(is_first_, false);
  text_ += is_empty ? "}" : "\n" + std::string(2 * static_cast<std::size_t>(depth_), ' ') + "}";
}

}  // namespace
}  // namespace lockstep::deepspeed

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
  read_values_as_deepspeed(root, name, read.warnings);
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

namespace lockstep::deepspeed {
namespace {

class Finder final : public KeyedVisitor {
 public:
  explicit Finder(const std::string& wanted) : wanted_(wanted) {}

  std::string value;

  void visit_field(OptionField& field) override {
    if (key(field.name()) == wanted_) value = field.print();
  }

  void visit_choice(OptionChoice& choice) override {
    const auto held = choice.held();
    if (!held) return;
    inside(choice.name(), [&] {
      if (key("type") == wanted_) value = choice.rows()[*held].name;
      inside("params", [&] { choice.describe_held(*this); });
    });
  }

 private:
  const std::string& wanted_;
};

class Setter final : public KeyedVisitor {
 public:
  Setter(const std::string& wanted, const std::string& value) : wanted_(wanted), text_{.text = value} {}

  void visit_field(OptionField& field) override {
    if (key(field.name()) == wanted_) (void)field.read(text_);
  }
  void visit_choice(OptionChoice&) override {}

 private:
  const std::string& wanted_;
  OptionText text_;
};

}  // namespace

std::string value_at(const DeepSpeedConfig& config, const std::string& key) {
  Finder finder(key);
  DeepSpeedConfig copy = config;
  describe(finder, copy);
  return finder.value;
}

void set_value_at(DeepSpeedConfig& config, const std::string& key, const std::string& value) {
  if (value.empty() || value == "null") return;
  Setter setter(key, value);
  describe(setter, config);
}

}  // namespace lockstep::deepspeed
