// Writing a checkpoint: every rank writes its files and rank 0 the manifest, at once or in the background
// (CheckpointWriter), for a Trainer by its CheckpointIO.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/torch.h>

#include "checkpoint/saving.h"
#include "checkpoint/staging_directory.h"
#include "checkpoint/together.h"
#include "formats/checkpoint_folders.h"

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

// The name of the draft is random: a rank that finds it sees the folder that rank 0 has created, whatever its
// path is there.
void check_sees(const fs::path& draft, const fs::path& folder, const fs::path& place_of_zero) {
  if (!fs::is_directory(draft)) refuse_place(folder, place_of_zero);
}

using FileTime = fs::file_time_type;

// When this process's launcher was started, by which a job's own checkpoints are known after a restart.
FileTime start_of_launcher() {
  const std::chrono::nanoseconds start(env::get_int("LOCKSTEP_LAUNCHER_START_NS", 0));
  const std::chrono::sys_time<std::chrono::nanoseconds> time(start);
  return std::chrono::time_point_cast<FileTime::duration>(FileTime::clock::from_sys(time));
}

// The latest of the times by which checkpoints in a folder are compared: of each one's manifest, of the marks
// that jobs leave there, of the launcher's start.
FileTime latest_in(const fs::path& folder) {
  auto latest = start_of_launcher();
  std::error_code ended;
  for (fs::directory_iterator at(folder, ended), end; !ended && at != end; at.increment(ended)) {
    const bool is_mark = at->path().filename().string().starts_with(".job");
    std::error_code failure;
    const auto time = fs::last_write_time(is_mark ? at->path() : at->path() / kManifestName, failure);
    if (!failure) latest = std::max(latest, time);
  }
  return latest;
}

// Makes the checkpoint in `draft` the newest beside `folder`, also where the clock was set back meanwhile:
// the one to go on from is found by its age.
void make_newest(const fs::path& draft, const fs::path& folder) {
  const auto manifest = draft / kManifestName;
  const auto latest = latest_in(place_of(folder).parent_path());
  std::error_code failure;
  if (fs::last_write_time(manifest, failure) > latest || failure) return;
  fs::last_write_time(manifest, latest + std::chrono::microseconds(1), failure);
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
  std::optional<StagingDirectory> staging;
  const auto place_of_zero = together([&] {
    saving.take(state());
    return place_of(folder).string();
  });
  const auto draft = together([&] {
    check_name(folder, place_of_zero);
    if (leads) staging.emplace(folder);
    return leads ? staging->path().filename().string() : std::string();
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
    saving.write_indices(staging->path());
    write_manifest(staging->path(), saving.manifest_text());
    make_newest(staging->path(), folder);
    staging->commit();
    return std::string();
  });
}

}  // namespace detail
namespace {

bool fits(const at::Tensor& buffer, const at::Tensor& tensor) {
  return buffer.scalar_type() == tensor.scalar_type() && buffer.sizes() == tensor.sizes() &&
         buffer.strides() == tensor.strides();
}

}  // namespace

CheckpointWriter::CheckpointWriter(const Communicator& communicator)
    : communicator_(detail::own_group(communicator)) {}

CheckpointWriter::~CheckpointWriter() {
  try {
    wait();
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
}

at::Tensor CheckpointWriter::reused_copy(const at::Tensor& tensor, std::size_t number) {
  const at::NoGradGuard no_grad;
  if (number >= buffers_.size()) buffers_.resize(number + 1);
  auto& buffer = buffers_[number];
  if (!buffer.defined() || !fits(buffer, tensor)) buffer = at::empty_like(tensor.detach().cpu());
  return buffer.copy_(tensor);
}

void CheckpointWriter::save(const std::filesystem::path& folder, const CheckpointState& state,
                            const CheckpointInfo& info, const SaveOptions& options) {
  wait();
  std::size_t number = 0;
  const auto copy = [&](const at::Tensor& tensor) { return reused_copy(tensor, number++); };
  CheckpointState snapshot;
  std::exception_ptr copy_failure;  // reported to all ranks
  try {
    snapshot = {.shared = state.shared.with_tensors(copy), .own = state.own.with_tensors(copy)};
  } catch (...) {
    copy_failure = std::current_exception();
  }
  is_writing_ = true;
  thread_ = std::jthread([this, folder, copy_failure, snapshot = std::move(snapshot), info, options] {
    const auto source = [&]() -> const CheckpointState& {
      if (copy_failure) std::rethrow_exception(copy_failure);
      return snapshot;
    };
    try {
      detail::save_checkpoint_of(folder, source, info, communicator_, options);
    } catch (...) {
      failure_ = std::current_exception();
    }
    is_writing_ = false;
  });
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (const auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
}

CheckpointIO::~CheckpointIO() = default;

void CheckpointIO::save(const std::filesystem::path& folder, const CheckpointState& state,
                        const CheckpointInfo& info, const Communicator& communicator) {
  save_checkpoint(folder, state, info, communicator);
}

Checkpoint CheckpointIO::load(const std::filesystem::path& folder, Verify verify,
                              const Communicator& communicator) {
  return {folder, verify, communicator};
}

void CheckpointIO::remove(const std::filesystem::path& folder) { detail::remove_checkpoint(folder); }

}  // namespace lockstep
