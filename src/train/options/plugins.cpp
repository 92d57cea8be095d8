#include "train/options/plugins.h"

#include <set>
#include <string>
#include <variant>

#include <lockstep/base/error.h>
#include <lockstep/checkpoint/checkpoint_io.h>

namespace lockstep::detail {
namespace {

constexpr const char* kKinds[] = {"a ClusterEnvironment", "a Precision", "a CheckpointIO"};

[[noreturn]] void refuse(const Plugin& plugin, const std::string& also, std::string hint) {
  throw ConfigError("train", {.what = std::string("plugins has ") + kKinds[plugin.index()] + ", and " + also,
                              .expected = "one of them",
                              .got = "both",
                              .hint = std::move(hint)});
}

void check_kinds(const std::vector<Plugin>& plugins) {
  std::set<std::size_t> kinds;
  for (const auto& plugin : plugins) {
    if (std::visit([](const auto& pointer) { return pointer == nullptr; }, plugin))
      throw ConfigError("train", {.what = "plugins", .expected = "plugins", .got = "a null pointer"});
    if (!kinds.insert(plugin.index()).second) refuse(plugin, "another one", "there can be one of each kind");
  }
}

}  // namespace

void apply_plugins(TrainerOptions& options) {
  check_kinds(options.plugins);
  for (const auto& plugin : options.plugins) {
    if (const auto* environment = std::get_if<std::shared_ptr<ClusterEnvironment>>(&plugin)) {
      if (options.cluster_environment) refuse(plugin, "cluster_environment names another one", "");
      options.cluster_environment = *environment;
    } else if (const auto* precision = std::get_if<std::shared_ptr<Precision>>(&plugin)) {
      if (!std::holds_alternative<Fp32>(options.precision))
        refuse(plugin, "precision names another one", "leave --trainer.precision as it is by default");
      options.precision = *precision;
    } else if (options.async_checkpoint) {
      refuse(plugin, "async_checkpoint writes checkpoints itself", "");
    }
  }
}

std::shared_ptr<CheckpointIO> own_checkpoint_io(const TrainerOptions& options) {
  for (const auto& plugin : options.plugins)
    if (const auto* io = std::get_if<std::shared_ptr<CheckpointIO>>(&plugin)) return *io;
  return nullptr;
}

std::shared_ptr<CheckpointIO> checkpoint_io(const TrainerOptions& options) {
  auto own = own_checkpoint_io(options);
  return own ? own : std::make_shared<CheckpointIO>();
}

}  // namespace lockstep::detail
