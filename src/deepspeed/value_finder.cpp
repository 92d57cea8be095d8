// Values of DeepSpeed's configuration by their dotted keys.
#include "deepspeed/read_config.h"

#include "base/option_keys.h"

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
