// Writing a checkpoint: every rank its files, rank 0 the manifest.
#include <optional>

#include <lockstep/base/error.h>
#include <lockstep/checkpoint/checkpoint.h>

#include "checkpoint/saving.h"
#include "checkpoint/staging_directory.h"
#include "checkpoint/together.h"
#include "formats/checkpoint_siblings.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using namespace detail;

fs::path place_of(const fs::path& folder) {
  require_name(folder);
  return fs::absolute(without_slash(folder));
}

[[noreturn]] void refuse_place(const fs::path& folder, const fs::path& place_of_zero) {
  throw ConfigError("checkpoint", {.what = "the ranks do not write to one folder",
                                   .expected = place_of_zero.string() +
                                               ", as rank 0 was given, on a disk that all ranks see",
                                   .got = place_of(folder).string()});
}

void check_name(const fs::path& folder, const fs::path& place_of_zero) {
  if (place_of(folder).filename() != place_of_zero.filename()) refuse_place(folder, place_of_zero);
}

// Its name is random: who finds it there sees what rank 0 made, whatever the path to it.
void check_sees(const fs::path& draft, const fs::path& folder, const fs::path& place_of_zero) {
  if (!fs::is_directory(draft)) refuse_place(folder, place_of_zero);
}

}  // namespace

void save_checkpoint(const fs::path& folder, const CheckpointState& state, const CheckpointInfo& info,
                     const Communicator& communicator, const SaveOptions& options) {
  save_checkpoint_of(
      folder, [&]() -> const CheckpointState& { return state; }, info, communicator, options);
}

namespace detail {

void save_checkpoint_of(const fs::path& folder, const StateSource& state, const CheckpointInfo& info,
                        const Communicator& communicator, const SaveOptions& options) {
  const auto together = [&](const auto& step) { return detail::together(communicator, folder, step); };
  const bool leads = communicator.rank() == 0;
  Saving saving(info, communicator, [&](const std::string&) { return options.state_dict_type; });
  std::optional<StagingDirectory> making;
  const auto place_of_zero = together([&] {
    saving.take(state());
    return place_of(folder).string();
  });
  const auto draft = together([&] {
    check_name(folder, place_of_zero);
    if (leads) making.emplace(folder);
    return leads ? making->path().filename().string() : std::string();
  });
  std::string part;
  together([&] {
    const auto own_draft = place_of(folder).replace_filename(draft);
    check_sees(own_draft, folder, place_of_zero);
    saving.write_files(own_draft);
    part = saving.part();
    return std::string();
  });
  const auto parts = communicator.gather_bytes(part);
  together([&] {
    if (!leads) return std::string();
    saving.take_parts(parts);
    saving.write_indices(making->path());
    write_manifest(making->path(), saving.manifest_text());
    making->commit();
    return std::string();
  });
}

}  // namespace detail
}  // namespace lockstep
