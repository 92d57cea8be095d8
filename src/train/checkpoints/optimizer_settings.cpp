#include "train/checkpoints/optimizer_settings.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/log.h>
#include <lockstep/base/option_type.h>
#include <lockstep/train/callbacks/weight_averaging.h>

namespace lockstep::detail {
namespace {

std::string text_of_setting(double value) { return OptionType<double>::print(value); }

// Whether learning rates follow from the groups' initial_lr, which only the program sets.
bool goes_by_initial_lr(const RunSetup& setup, const RunOptimizer& optimizer) {
  const bool is_averaging = std::ranges::any_of(setup.callbacks, [](const auto& callback) {
    return dynamic_cast<const StochasticWeightAveraging*>(callback.get()) != nullptr;
  });
  if (is_averaging) return false;
  if (!optimizer.lr_scheduler) return true;
  const auto& schedule = optimizer.lr_scheduler->scheduler;
  return !std::holds_alternative<OneCycleLR>(schedule) && !std::holds_alternative<WarmupLR>(schedule) &&
         !std::holds_alternative<WarmupDecayLR>(schedule) && !std::holds_alternative<DeepSpeedLR>(schedule);
}

bool has_value(const HyperParameter& parameter, double value) {
  if (const auto* number = std::get_if<double>(&parameter)) return *number == value;
  const auto* number = std::get_if<std::int64_t>(&parameter);
  return number != nullptr && static_cast<double>(*number) == value;
}

// The only option of the program with this name and value; null where there is none, or several.
HyperParameters::value_type* option_of(HyperParameters& parameters, const std::string& name, double value) {
  HyperParameters::value_type* found = nullptr;
  for (auto& parameter : parameters) {
    const auto leaf = parameter.first.substr(parameter.first.find_last_of('/') + 1);
    const bool is_called_so = leaf == name || (name == "lr" && leaf == "learning_rate");
    if (!is_called_so || !has_value(parameter.second, value)) continue;
    if (found != nullptr) return nullptr;
    found = &parameter;
  }
  return found;
}

void record(RunSetup& setup, const std::string& name, double given, double kept) {
  auto& run = setup.options.run;
  auto* const option = option_of(run.hyper_parameters, name, given);
  if (option == nullptr) return;
  option->second = kept;
  auto key = option->first;
  std::ranges::replace(key, '/', '.');
  run.config_yaml = with_scalar(run.config_yaml, key, text_of_setting(kept));
}

}  // namespace

OptimizerSettings::OptimizerSettings(const RunSetup& setup) : given_(settings_of(setup)) {}

std::vector<OptimizerSettings::Setting> OptimizerSettings::settings_of(const RunSetup& setup) {
  std::vector<Setting> settings;
  for (std::size_t i = 0; i < setup.optimizers.size(); ++i) {
    const auto& optimizer = setup.optimizers[i];
    const auto& groups = optimizer.optimizer->groups();
    const bool has_rate = goes_by_initial_lr(setup, optimizer);
    for (std::size_t j = 0; j < groups.size(); ++j) {
      const auto place = std::to_string(i) + "/" + std::to_string(j);
      if (has_rate) settings.push_back({"lr", place, groups[j].initial_lr});
      settings.push_back({"weight_decay", place, groups[j].weight_decay});
      // Schedules may change the momentum.
      if (groups[j].momentum && !optimizer.lr_scheduler)
        settings.push_back({"momentum", place, *groups[j].momentum});
    }
  }
  return settings;
}

void OptimizerSettings::tell(RunSetup& setup) const {
  const auto kept = settings_of(setup);
  std::vector<std::string> said;
  for (const auto& given : given_) {
    const auto now = std::ranges::find_if(kept, [&](const Setting& setting) {
      return setting.name == given.name && setting.place == given.place;
    });
    if (now == kept.end() || now->value == given.value) continue;
    const auto text =
        given.name + " " + text_of_setting(now->value) + ", not " + text_of_setting(given.value);
    if (std::ranges::find(said, text) != said.end()) continue;
    said.push_back(text);
    record(setup, given.name, given.value, now->value);
  }
  if (said.empty() || !setup.is_global_zero()) return;
  std::string all;
  for (const auto& text : said) all += (all.empty() ? "" : "; ") + text;
  log_warning("the run goes on with the optimizer's settings of its checkpoint: " + all +
              ", which this run was given; to train with others, start from the weights with --init_weights");
  if (setup.facts.is_recorded && !setup.options.run.config_yaml.empty())
    write_file_atomically(setup.run_dir / "config.yaml", setup.options.run.config_yaml);
}

// Handles the YAML that OptionTree::to_yaml() writes.
std::string with_scalar(const std::string& yaml, const std::string& key, const std::string& value) {
  std::vector<std::pair<std::size_t, std::string>> open;  // the keys that the line is in, with their columns
  std::istringstream lines(yaml);
  std::string made;
  for (std::string line; std::getline(lines, line); made += line + '\n') {
    const auto column = line.find_first_not_of(' ');
    const auto colon = line.find(':');
    if (column == line.npos || colon == line.npos || line[column] == '-' || line[column] == '#') continue;
    while (!open.empty() && open.back().first >= column) open.pop_back();
    open.emplace_back(column, line.substr(column, colon - column));
    std::string path;
    for (const auto& [at, name] : open) path += (path.empty() ? "" : ".") + name;
    if (path == key) line = line.substr(0, colon + 1) + " " + value;
  }
  return made;
}

}  // namespace lockstep::detail
