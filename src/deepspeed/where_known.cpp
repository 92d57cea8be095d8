#include "deepspeed/where_known.h"

#include <vector>

#include <lockstep/base/nearest.h>
#include <lockstep/base/options.h>
#include <lockstep/deepspeed/config.h>

#include "base/option_keys.h"

namespace lockstep::deepspeed {
namespace {

/// Every key and every section, each once.
class Collector final : public KeyedVisitor {
 public:
  std::vector<std::string> paths;

  void visit_field(OptionField& field) override { paths.push_back(key(field.name())); }
  void visit_choice(OptionChoice& choice) override { paths.push_back(key(choice.name())); }
  void visit_group(std::string_view name, std::string_view help, const Members& members) override {
    paths.push_back(key(name));
    KeyedVisitor::visit_group(name, help, members);
  }
};

const std::vector<std::string>& all_paths() {
  static const auto paths = [] {
    Collector collector;
    DeepSpeedConfig config;
    describe(collector, config);
    return std::move(collector.paths);
  }();
  return paths;
}

/// The one section besides that at `path` which has `key`.
std::string home_of(std::string_view key, const std::string& path) {
  std::vector<std::string> homes;
  for (const auto& known : all_paths()) {
    const auto dot = known.rfind('.');
    const auto section = dot == std::string::npos ? "" : known.substr(0, dot);
    const auto name = dot == std::string::npos ? known : known.substr(dot + 1);
    if (name == key && section != path) homes.push_back(section.empty() ? "the top level" : section);
  }
  return homes.size() == 1 ? homes.front() : "";
}

}  // namespace

std::string where_known(std::string_view key, std::span<const std::string> known, const std::string& path) {
  const auto home = home_of(key, path);
  if (!home.empty()) return std::string(key) + " belongs to " + home;
  return did_you_mean(nearest_name(key, known));
}

}  // namespace lockstep::deepspeed
