#include "checkpoint/local_checkpoints.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/formats/checksum.h>

#include "base/folder_lock.h"
#include "checkpoint/saving.h"
#include "checkpoint/staging_directory.h"
#include "checkpoint/together.h"
#include "formats/checkpoint_folders.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

constexpr auto kSharedMemory = "/dev/shm";
constexpr std::size_t kNameDigits = 16;

fs::path default_root() { return fs::path(kSharedMemory) / ("lockstep-" + std::to_string(::geteuid())); }

// The same name on all nodes, since rank 0 broadcasts the run directory.
std::string name_of_run(const fs::path& run_dir) {
  const auto path = without_slash(fs::absolute(run_dir).lexically_normal()).string();
  return checksum(std::as_bytes(std::span(path))).substr(0, kNameDigits);
}

fs::path root_at(const fs::path& wanted) {
  return wanted.empty() ? default_root() : without_slash(fs::absolute(wanted).lexically_normal());
}

void make_root(const fs::path& root) {
  const auto above = root.parent_path();
  std::error_code failure;
  if (root != default_root()) fs::create_directories(above, failure);
  if (!fs::is_directory(above, failure))
    throw IoError("checkpoint", {.what = "folder " + root.string() + " cannot be made",
                                 .got = failure ? failure.message() : "no folder " + above.string(),
                                 .hint = "folder of local_checkpoint names another place"});
  make_private_folder(root, kNobodyElseWrites);
}

fs::path made_folder(const fs::path& wanted_root, const fs::path& run_dir, const Communicator& communicator) {
  const auto name = communicator.broadcast_bytes(name_of_run(run_dir));
  const auto root = root_at(wanted_root);
  (void)all_or_none(communicator, "folder " + root.string() + " cannot be used", [&] {
    make_root(root);
    make_private_folder(root / name);
    return std::string();
  });
  return root / name;
}

fs::path draft_of(const fs::path& target) {
  return target.parent_path() / ("." + target.filename().string() + ".draft");
}

// Removes all complete checkpoints in `folder` but `newest`, which may be empty. Other ranks may be writing
// the next one already.
void remove_all_but(const fs::path& newest, const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path() != newest && is_name_of_local(entry.path())) remove_or_warn(entry.path());
}

// Removes `checkpoint` of a run that has ended, and older ones. If that run has been started again meanwhile,
// they are left alone.
void remove_with_older(const fs::path& checkpoint) {
  const auto run = checkpoint.parent_path();
  const auto lock = lock_alone(run);
  if (!lock) return;
  const auto time = [](const fs::path& folder) {
    std::error_code none;
    const auto written = fs::last_write_time(folder / kManifestName, none);
    return none ? fs::file_time_type::min() : written;
  };
  const auto latest = time(checkpoint);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run, ignored))
    if (is_name_of_local(entry.path()) && time(entry.path()) <= latest) remove_or_warn(entry.path());
  (void)::rmdir(run.c_str());  // fails if there are later checkpoints
}

// The manifest with the time of writing by the clock of rank 0, which all nodes use.
std::string with_time(fs::file_time_type time, const std::string& manifest) {
  return std::to_string(time.time_since_epoch().count()) + '\n' + manifest;
}

void write_with_time(const fs::path& folder, const std::string& text) {
  const auto cut = text.find('\n');
  write_manifest(folder, text.substr(cut + 1));
  const fs::file_time_type::duration time(std::stoll(text.substr(0, cut)));
  fs::last_write_time(folder / kManifestName, fs::file_time_type(time));
}

// States of optimizers have the same bits on all ranks, so that each writes a share. Of other entries rank 0
// writes its values.
StateDictType type_of_entry(const std::string& entry) {
  return entry.starts_with("optimizer") ? StateDictType::kSharded : StateDictType::kFull;
}

FileList list_of(const std::map<std::string, FileRecord>& files) {
  FileList list;
  for (const auto& [name, record] : files) list.emplace_back(name, record.bytes);
  return list;
}

}  // namespace

LocalCheckpoints::LocalCheckpoints(const fs::path& root, const fs::path& run_dir, int replication_factor,
                                   const Communicator& communicator)
    : communicator_(communicator),
      group_(own_group(communicator)),
      folder_(made_folder(root, run_dir, communicator)),
      nodes_(folder_, communicator),
      copies_(std::min(replication_factor, nodes_.count()) - 1) {
  root_ = folder_.parent_path();
  if (nodes_.leads()) {
    lock_ = lock_for_use(folder_);
    remove_unfinished(folder_);
  }
  communicator.barrier();  // no rank writes before the others are ready
}

LocalCheckpoints::~LocalCheckpoints() {
  try {
    wait();
  } catch (const CommError&) {  // training has failed with it, too
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
  if (nodes_.leads()) (void)::rmdir(folder_.c_str());  // fails if something is in it
}

// The folder may have been removed meanwhile, when somebody cleared the memory.
void LocalCheckpoints::hold_folder() {
  std::error_code ignored;
  if (!fs::exists(folder_, ignored)) {
    make_root(root_);
    make_private_folder(folder_);
  }
  if (nodes_.leads() && !is_locked_one(lock_, folder_)) lock_ = lock_for_use(folder_);
}

// An IoError is the same on all ranks.
void LocalCheckpoints::warn_of_failure() {
  try {
    wait();
  } catch (const CommError&) {
    throw;
  } catch (const IoError& error) {
    if (communicator_.rank() == 0) log_warning(std::string(error.what()) + "; training goes on");
  } catch (const std::exception& error) {
    log_warning(std::string(error.what()) + "; training goes on");
  }
}

void LocalCheckpoints::save(const CheckpointState& state, const CheckpointInfo& info) {
  warn_of_failure();
  const auto target = folder_ / name_of_local(info.global_step);
  auto saving = std::make_shared<Saving>(info, communicator_, type_of_entry);
  Begun begun;
  try {
    saving->take(state);
    hold_folder();
    make_private_folder(draft_of(target));
    saving->write_files(draft_of(target));
    begun.taken = fs::last_write_time(draft_of(target));
  } catch (...) {
    begun.failure = std::current_exception();
  }
  saving->forget_tensors();
  thread_ = std::jthread([this, saving, begun, target] {
    try {
      complete(*saving, begun, target);
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

// Runs in the background thread. Each node has the new checkpoint or the previous one; where nodes are killed
// between their renames they may have either, of which one is complete.
void LocalCheckpoints::complete(Saving& saving, const Begun& begun, const fs::path& target) {
  const auto draft = draft_of(target);
  const bool is_zero = group_.rank() == 0;
  const auto step = [&](const auto& act) { return together(group_, target, act); };
  try {
    step([&] {
      if (begun.failure) std::rethrow_exception(begun.failure);
      return std::string();
    });
    const auto files = list_of(saving.files());
    const auto parts = group_.gather_bytes(saving.part());
    const auto manifest = step([&] {
      if (is_zero) saving.take_parts(parts);
      return is_zero ? with_time(begun.taken, saving.manifest_text()) : std::string();
    });
    step([&] {
      replicate(draft, files, copies_, nodes_, group_);
      if (nodes_.leads()) write_with_time(draft, manifest);
      return std::string();
    });
    step([&] {
      if (nodes_.leads()) fs::rename(draft, target);
      return std::string();
    });
  } catch (...) {
    if (nodes_.leads()) remove_or_warn(draft);
    throw;
  }
  if (!nodes_.leads()) return;
  remove_all_but(target, folder_);
  forget_resumed();
}

// Happens once: a later checkpoint there belongs to a run that has continued itself.
void LocalCheckpoints::forget_resumed() {
  const auto resumed = std::exchange(resumed_, {});
  if (!resumed.empty() && resumed.parent_path() != folder_) remove_with_older(resumed);
}

void LocalCheckpoints::wait() {
  if (thread_.joinable()) thread_.join();
  if (const auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
}

void LocalCheckpoints::close() {
  if (thread_.joinable()) thread_.join();
  group_ = Communicator();
  wait();
}

std::vector<LocalCandidate> LocalCheckpoints::find(const std::vector<fs::path>& run_dirs) const {
  std::vector<std::string> runs;
  for (const auto& run_dir : run_dirs) runs.push_back(name_of_run(run_dir));
  return find_local(root_, runs, nodes_, communicator_);
}

fs::path LocalCheckpoints::place_of(const LocalCandidate& candidate) const { return root_ / candidate.place; }

void LocalCheckpoints::refuse_unusable(const LocalCandidate& candidate) const {
  const auto name = "local checkpoint " + candidate.place;
  if (candidate.world_size != communicator_.size())
    throw CheckpointError("checkpoint", {.what = name + " is of another number of ranks",
                                         .expected = std::to_string(communicator_.size()),
                                         .got = std::to_string(candidate.world_size)});
  const auto lost = lost_files(root_, candidate, nodes_, communicator_);
  if (!lost.empty())
    throw CheckpointError("checkpoint",
                          {.what = name + " is not whole",
                           .expected = "each file on one node at least",
                           .got = "none that has " + lost,
                           .hint = "with a larger replication_factor more nodes hold a copy of each file"});
}

Checkpoint LocalCheckpoints::open(const LocalCandidate& candidate, Verify verify) {
  refuse_unusable(candidate);
  fetch_files(place_of(candidate), candidate, nodes_, communicator_);
  const auto count = static_cast<int>(nodes_.ranks_of(nodes_.own()).size());
  auto files =
      open_together(place_of(candidate), verify, communicator_, {.index = nodes_.index(), .count = count});
  resumed_ = place_of(candidate);
  return Checkpoint(std::move(files));
}

void LocalCheckpoints::forget_others() {
  if (nodes_.leads()) remove_all_but(resumed_, folder_);
}

void LocalCheckpoints::remove() {
  if (!nodes_.leads()) return;
  remove_or_warn(folder_);
  forget_resumed();
}

}  // namespace lockstep::detail
