// The files of a checkpoint of DeepSpeed: finding and opening all of them.
#include "formats/zero_checkpoint.h"

#include <algorithm>
#include <set>

#include <lockstep/base/error.h>

#include "formats/file_text.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

constexpr auto kModelEnd = "_model_states.pt";
constexpr auto kOptimizerEnd = "_optim_states.pt";
constexpr auto kModelName = "mp_rank_00_model_states.pt";
constexpr auto kBf16 = "bf16_";
constexpr int kLastStage = 3;

std::string of_rank(std::size_t rank, const char* end) {
  return "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00" + end;
}

Names names_in(const fs::path& folder) {
  Names names;
  std::error_code failure;
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end; at.increment(failure)) {
    auto name = at->path().filename().string();
    if (name.ends_with("model_states.pt") || name.ends_with("optim_states.pt")) names.insert(std::move(name));
  }
  return names;
}

[[noreturn]] void refuse(const fs::path& folder, const std::string& what, std::string hint) {
  throw CheckpointError(
      "checkpoint",
      {.what = "the checkpoint of DeepSpeed in " + folder.string() + " " + what, .hint = std::move(hint)});
}

void refuse_other_kinds(const fs::path& folder, const Names& names) {
  for (const auto& name : names) {
    if (name.find("mp_rank_00") != name.npos && !name.starts_with("layer_") && !name.starts_with("expp"))
      continue;
    refuse(folder, "has " + in_quotes(name) + ", which is of tensor or pipeline parallelism, or of experts",
           "gather the weights in Python first, and save them with torch.save");
  }
}

OpenedTorchFile opened(const fs::path& folder, const Names& names, const std::string& name) {
  if (!names.contains(name))
    refuse(folder, "lacks the file " + name, "all ranks save: was one killed, or is a node's disk its own?");
  return OpenedTorchFile(folder / name);
}

std::int64_t largest(const OpenedTorchFile& file, const pickle::List& counts) {
  std::int64_t most = 0;
  for (const auto& count : counts) {
    const auto* number = count.as<std::int64_t>();
    if (number == nullptr) refuse_key(file, "partition_count", "integers", std::string(count.kind()));
    most = std::max(most, *number);
  }
  return most;
}

/// The number of ranks that have saved, as stored in the file of one: a number, or one for each group.
std::size_t count_of_ranks(const OpenedTorchFile& file) {
  const auto& state = zero_state(file);
  const auto* held = state.find("partition_count");
  const auto* list = held == nullptr ? nullptr : held->as<pickle::List>();
  const auto count =
      list == nullptr ? held_in<std::int64_t>(file, state, "partition_count") : largest(file, *list);
  if (count < 1) refuse_key(file, "partition_count", "1 rank or more", std::to_string(count));
  return static_cast<std::size_t>(count);
}

/// The stage of ZeRO; files of bfloat16 at stage 1 do not contain it.
int stage_of(const OpenedTorchFile& file) {
  const auto& state = zero_state(file);
  if (state.find("zero_stage") == nullptr) return 1;
  const auto stage = held_in<std::int64_t>(file, state, "zero_stage");
  if (stage < 1 || stage > kLastStage) refuse_key(file, "zero_stage", "1, 2 or 3", std::to_string(stage));
  return static_cast<int>(stage);
}

void check_agreement(const std::vector<OpenedTorchFile>& files) {
  for (const auto& file : files) {
    if (stage_of(file) != stage_of(files.front()))
      refuse_key(file, "zero_stage", std::to_string(stage_of(files.front())) + ", as in that of rank 0",
                 std::to_string(stage_of(file)));
    if (count_of_ranks(file) != files.size())
      refuse_key(file, "partition_count", std::to_string(files.size()) + ", as in that of rank 0",
                 std::to_string(count_of_ranks(file)));
  }
}

/// Refuses files of one checkpoint that were written by different runs, or after different steps.
void check_moment(const ZeroFiles& files) {
  const auto compare = [](const std::vector<OpenedTorchFile>& some, const OpenedTorchFile& first,
                          const char* key) {
    const auto* expected = first.root().find(key);
    for (const auto& file : some) {
      const auto* found = file.root().find(key);
      if (expected == nullptr || found == nullptr || pickle::write(*found) == pickle::write(*expected))
        continue;
      refuse_key(file, key, "that of " + in_quotes(first.where()) + ", as all ranks save at once",
                 "another one");
    }
  };
  compare(files.models, files.models.front(), "global_steps");
  compare(files.models, files.models.front(), "ds_config");
  compare(files.optimizers, files.models.front(), "ds_config");
}

/// Refuses files in `others` with that end, which were left over from another checkpoint.
void refuse_left_over(const fs::path& folder, const Names& others, const char* end, const std::string& fact) {
  for (const auto& name : others) {
    if (name.ends_with(end))
      refuse(folder, "has " + name + ", but " + fact,
             "it is of an older checkpoint of that tag: move the files that were not saved with the others "
             "away");
  }
}

std::string saved_by(std::size_t ranks) { return std::to_string(ranks) + " ranks have saved it"; }

std::vector<OpenedTorchFile> open_optimizers(const fs::path& folder, const Names& names) {
  const bool is_bf16 = std::ranges::any_of(names, [](const auto& name) { return name.starts_with(kBf16); });
  const auto name_of = [&](std::size_t rank) {
    return (is_bf16 ? kBf16 : "") + of_rank(rank, kOptimizerEnd);
  };
  auto others = names;
  std::vector<OpenedTorchFile> files;
  const auto open_next = [&] {
    const auto name = name_of(files.size());
    files.push_back(opened(folder, names, name));
    others.erase(name);
  };
  open_next();
  const auto ranks = count_of_ranks(files.front());
  while (files.size() < ranks) open_next();
  refuse_left_over(folder, others, kOptimizerEnd, saved_by(ranks));
  check_agreement(files);
  return files;
}

std::vector<OpenedTorchFile> open_models(const fs::path& folder, const Names& names, std::size_t ranks) {
  auto others = names;
  std::vector<OpenedTorchFile> files;
  while (files.size() < ranks) {
    const auto name = of_rank(files.size(), kModelEnd);
    files.push_back(opened(folder, names, name));
    others.erase(name);
  }
  refuse_left_over(folder, others, kModelEnd, saved_by(ranks));
  return files;
}

/// Below stage 3 one rank saves the model.
OpenedTorchFile open_model(const fs::path& folder, Names names, int stage) {
  auto model = opened(folder, names, kModelName);
  names.erase(kModelName);
  refuse_left_over(folder, names, kModelEnd,
                   "it is of stage " + std::to_string(stage) + ", and has " + kModelName);
  return model;
}

/// Whether the parameters are sharded; not at stage 0.
bool is_cut(const OpenedTorchFile& model) {
  const auto* shapes = model.root().find("param_shapes");
  return shapes != nullptr && shapes->as<pickle::None>() == nullptr;
}

}  // namespace

void refuse_key(const OpenedTorchFile& file, const std::string& key, const std::string& expected,
                const std::string& got) {
  throw CheckpointError(
      "checkpoint",
      {.what = "'" + file.where() + "' is none of DeepSpeed's: " + key, .expected = expected, .got = got});
}

const pickle::Dict& zero_state(const OpenedTorchFile& optimizer) {
  return held_in<pickle::Dict>(optimizer, optimizer.root(), "optimizer_state_dict");
}

bool has_zero_files(const fs::path& folder) { return !names_in(folder).empty(); }

ZeroFiles open_zero_files(const fs::path& folder) {
  const auto names = names_in(folder);
  refuse_other_kinds(folder, names);
  ZeroFiles files{.folder = folder, .stage = 0, .models = {}, .optimizers = {}};
  const auto is_zero = [](const std::string& name) { return name.find("zero_pp_rank_") != name.npos; };
  if (std::ranges::any_of(names, is_zero)) {
    files.optimizers = open_optimizers(folder, names);
    files.stage = stage_of(files.optimizers.front());
  }
  if (files.stage == kLastStage) {
    files.models = open_models(folder, names, files.optimizers.size());
  } else {
    files.models.push_back(open_model(folder, names, files.stage));
    const bool is_whole = !is_cut(files.models.front());
    if (files.optimizers.empty() && !is_whole)
      refuse(folder, "lacks the file " + of_rank(0, kOptimizerEnd),
             "ZeRO keeps the weights of float32 there");
    if (is_whole) files.stage = 0;
  }
  check_moment(files);
  return files;
}

}  // namespace lockstep::detail
