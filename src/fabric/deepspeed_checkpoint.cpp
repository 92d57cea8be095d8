#include <lockstep/fabric/deepspeed_checkpoint.h>

#include <algorithm>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/torch.h>

#include "checkpoint/together.h"
#include "fabric/fabric_checkpoint.h"
#include "formats/checkpoint_folders.h"
#include "formats/file_text.h"
#include "formats/zero_checkpoint.h"
#include "strategy/deepspeed_strategy.h"

namespace lockstep::deepspeed {
namespace {

namespace fs = std::filesystem;
using detail::in_quotes;

std::string chosen_tag(const SaveCheckpointOptions& options) {
  if (!options.tag.empty() || options.global_step.value_or(-1) < 0) return options.tag;
  return "global_step" + std::to_string(*options.global_step);
}

TagValidation validation_of(const Fabric& fabric, const SaveCheckpointOptions& options) {
  if (options.tag_validation) return *options.tag_validation;
  const auto* const strategy = dynamic_cast<const DeepSpeedStrategy*>(&fabric.strategy());
  return strategy == nullptr ? TagValidation::kWarn : strategy->config().checkpoint.tag_validation;
}

/// A rank's tag that is not that of rank 0, in words; empty where all are the same.
std::string difference(const std::vector<std::string>& tags) {
  for (std::size_t rank = 0; rank < tags.size(); ++rank)
    if (tags[rank] != tags.front())
      return in_quotes(tags.front()) + " on rank 0, " + in_quotes(tags[rank]) + " on rank " +
             std::to_string(rank);
  return {};
}

/// The tag of all ranks. The same error on all of them.
std::string agreed_tag(const Fabric& fabric, const SaveCheckpointOptions& options) {
  const auto tags = fabric.strategy().communicator().all_gather_bytes(chosen_tag(options));
  const auto validation = validation_of(fabric, options);
  if (const auto found = difference(tags); !found.empty() && validation != TagValidation::kIgnore) {
    if (validation == TagValidation::kFail)
      throw ConfigError("deepspeed", {.what = "save_checkpoint() was given tags that differ",
                                      .expected = "one tag, as checkpoint.tag_validation is Fail",
                                      .got = found});
    if (fabric.is_global_zero()) log_warning("save_checkpoint() takes the tag of rank 0; got " + found);
  }
  if (detail::is_tag(tags.front()) && tags.front() != detail::kLatestName) return tags.front();
  throw ConfigError("deepspeed",
                    {.what = "save_checkpoint(), tag",
                     .expected = "the name of a folder, or a global_step of 0 or more",
                     .got = tags.front().empty() && options.global_step ? std::to_string(*options.global_step)
                                                                        : in_quotes(tags.front())});
}

bool is_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  const auto place = detail::place_of_checkpoint(folder);
  return fs::exists(place / detail::kManifestName, ignored) || detail::has_zero_files(folder);
}

/// Whether rank 0 finds a checkpoint in `folder` itself; the same on all ranks.
bool is_checkpoint_on_rank0(const Communicator& communicator, const fs::path& folder) {
  const bool is_one = communicator.rank() == 0 && is_checkpoint(folder);
  return !communicator.broadcast_bytes(is_one ? "yes" : "").empty();
}

struct Wanted {
  const LoadCheckpointOptions& options;

  bool operator()(const std::shared_ptr<torch::nn::Module>&) const { return true; }
  bool operator()(const std::shared_ptr<FabricOptimizer>&) const {
    return options.load_optimizer_states && !options.load_module_only;
  }
  bool operator()(const lockstep::Scheduler*) const {
    return options.load_lr_scheduler_states && !options.load_module_only;
  }
  template <class Value>
  bool operator()(const Value*) const {
    return !options.load_module_only;
  }
};

/// Keys of what precisions keep, also of others than the program has now.
constexpr std::string_view kPrecisions[] = {"MixedPrecision", "Precision"};

/// What neither the program nor Fabric::save() has put there.
StateTree without(const StateTree& tree, const NamedStates& names) {
  StateTree rest;
  for (const auto& [name, value] : tree.entries()) {
    const auto is_it = [&, &name = name](const auto& state) { return state.first == name; };
    const bool is_precision = std::ranges::find(kPrecisions, name) != std::end(kPrecisions);
    if (!is_precision && std::ranges::none_of(names, is_it)) rest.set(name, value);
  }
  return rest;
}

}  // namespace

fs::path save_checkpoint(const Fabric& fabric, const fs::path& directory, const NamedStates& states,
                         const SaveCheckpointOptions& options) {
  const auto tag = agreed_tag(fabric, options);
  const auto folder = directory / tag;
  detail::save_states(fabric, folder, states, options.filter,
                      std::max<std::int64_t>(options.global_step.value_or(0), 0));
  if (!options.save_latest) return folder;
  const auto latest = directory / detail::kLatestName;
  detail::together(fabric.strategy().communicator(), latest, [&] {
    if (fabric.is_global_zero()) write_file_atomically(latest, tag);
    return std::string();
  });
  return folder;
}

std::optional<LoadedCheckpoint> load_checkpoint(const Fabric& fabric, const fs::path& directory,
                                                const NamedStates& states,
                                                const LoadCheckpointOptions& options) {
  const auto& communicator = fabric.strategy().communicator();
  const auto folder = detail::agreed_folder(communicator, directory, options.tag);
  if (folder == directory && !is_checkpoint_on_rank0(communicator, folder)) {
    if (fabric.is_global_zero())
      log_warning("nothing is loaded: " + directory.string() + " has no file latest, and no tag was given");
    return std::nullopt;
  }
  NamedStates wanted;
  for (const auto& state : states)
    if (std::visit(Wanted{options}, state.second.target())) wanted.push_back(state);
  const LoadOptions how{.strict = options.load_module_strict};
  auto rest = fabric.load(folder, wanted, how);
  return LoadedCheckpoint{.folder = folder, .client_state = without(rest, states)};
}

}  // namespace lockstep::deepspeed
