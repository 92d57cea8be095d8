// The pass that writes options as YAML.
#include <lockstep/base/options.h>

#include "base/option_keys.h"

namespace lockstep {
namespace {

class YamlPrinter final : public OptionVisitor {
 public:
  std::string text;

  void visit_field(OptionField& field) override { line(field.name() + ": " + field.print()); }

  void visit_group(std::string_view name, std::string_view, const Members& members) override {
    line(std::string(name) + ":");
    const auto before = text.size();
    inside([&] { members(*this); });
    if (text.size() == before) text.insert(before - 1, " {}");
  }

  void visit_choice(OptionChoice& choice) override {
    const auto held = choice.held();
    if (!held) return line("# " + choice.name() + ": set in code");
    const auto name = detail::yaml_scalar(choice.rows()[*held].name, true);
    const auto start = text.size();
    line(choice.name() + ":");
    inside([&] { line(std::string(kChoiceName) + ": " + name); });
    const auto before = text.size();
    inside([&] { choice.describe_held(*this); });
    if (text.size() > before) return;
    text.resize(start);
    line(choice.name() + ": " + name);
  }

 private:
  void line(const std::string& content) { text += std::string(2 * depth_, ' ') + content + "\n"; }

  template <class Visit>
  void inside(const Visit& visit) {
    ++depth_;
    visit();
    --depth_;
  }

  std::size_t depth_ = 0;
};

}  // namespace

std::string OptionTree::to_yaml() const {
  YamlPrinter printer;
  visit(printer);
  return std::move(printer.text);
}

}  // namespace lockstep
