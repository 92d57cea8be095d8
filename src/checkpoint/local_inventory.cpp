// Which files of local checkpoints the nodes have.
#include "checkpoint/local_checkpoints.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>
#include <string>
#include <system_error>
#include <tuple>

#include <nlohmann/json.hpp>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "checkpoint/staging_directory.h"
#include "checkpoint/together.h"
#include "formats/checkpoint_files.h"
#include "formats/checkpoint_folders.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

std::string octal(mode_t mode) {
  char digits[8];
  std::snprintf(digits, sizeof digits, "%04o", static_cast<unsigned>(mode & 07777));
  return digits;
}

// Why `folder` cannot be used; empty where it can.
std::string fault_of(const fs::path& folder, mode_t forbidden) {
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0) return std::generic_category().message(errno);
  if (S_ISLNK(status.st_mode)) return "a symbolic link";
  if (!S_ISDIR(status.st_mode)) return "something that is no folder";
  if (status.st_uid != ::geteuid()) return "a folder of user " + std::to_string(status.st_uid);
  return (status.st_mode & forbidden) != 0 ? "a folder of mode " + octal(status.st_mode) : "";
}

}  // namespace

void make_private_folder(const fs::path& folder, mode_t forbidden) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw IoError("checkpoint", {.what = "folder " + folder.string() + " cannot be made",
                                 .got = std::generic_category().message(errno)});
  const auto fault = fault_of(folder, forbidden);
  if (fault.empty()) return;
  throw ConfigError("checkpoint",
                    {.what = "folder " + folder.string() + " cannot be used",
                     .expected = "a folder of this user, in which nobody else may " +
                                 std::string(forbidden == kNobodyElse ? "do anything" : "write"),
                     .got = fault,
                     .hint = "folder of local_checkpoint names another place"});
}

bool is_private_folder(const fs::path& folder) { return fault_of(folder, kNobodyElse).empty(); }

namespace {

constexpr auto kPrefix = "step=";
constexpr std::size_t kNamedFiles = 8;

FileList held_files(const fs::path& folder, const Manifest& manifest) {
  FileList held;
  for (const auto& [name, record] : manifest.files) {
    std::error_code failure;
    const auto bytes = fs::file_size(folder / name, failure);
    if (!failure && bytes == record.bytes) held.emplace_back(name, record.bytes);
  }
  return held;
}

nlohmann::json entry_of(const fs::path& folder, const std::string& run) {
  const auto manifest = read_manifest(folder);
  const auto written = fs::last_write_time(folder / kManifestName).time_since_epoch().count();
  return {{"place", (fs::path(run) / folder.filename()).string()},
          {"checksum", manifest.checksum},
          {"written", written},
          {"world_size", manifest.info.world_size},
          {"files", manifest.files.size()},
          {"held", held_files(folder, manifest)}};
}

// A folder that another user may have put there is skipped.
void add_run(const fs::path& root, const std::string& run, nlohmann::json& entries) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(root / run, ignored))) return;
  if (!is_private_folder(root / run)) {
    log_warning((root / run).string() + " is skipped: it is not a folder of this user alone");
    return;
  }
  for (const auto& folder : fs::directory_iterator(root / run, ignored)) {
    if (!is_name_of_local(folder)) continue;
    try {
      entries.push_back(entry_of(folder.path(), run));
    } catch (const std::exception& error) {
      log_warning("local checkpoint " + folder.path().string() + " is skipped: " + error.what());
    }
  }
}

std::string inventory(const fs::path& root, const std::vector<std::string>& runs) {
  nlohmann::json entries = nlohmann::json::array();
  for (const auto& run : runs) add_run(root, run, entries);
  return entries.dump();
}

LocalCandidate candidate_from(const nlohmann::json& entry) {
  const fs::file_time_type::duration written(entry.at("written").get<fs::file_time_type::rep>());
  return {.place = entry.at("place").get<std::string>(),
          .checksum = entry.at("checksum").get<std::string>(),
          .written = fs::file_time_type(written),
          .world_size = entry.at("world_size").get<int>(),
          .files = entry.at("files").get<std::size_t>()};
}

// Nodes that have the same checkpoint share one entry.
void add_to(std::map<std::pair<std::string, std::string>, LocalCandidate>& all, const nlohmann::json& entry,
            int node) {
  auto candidate = candidate_from(entry);
  const auto key = std::pair(candidate.place, candidate.checksum);
  auto& known = all.try_emplace(key, candidate).first->second;
  known.written = std::max(known.written, candidate.written);
  known.held[node] = entry.at("held").get<FileList>();
}

std::string names_of_lost(const fs::path& folder, const std::set<std::string>& held) {
  std::string text;
  std::size_t count = 0;
  for (const auto& [name, record] : read_manifest(folder).files) {
    if (held.contains(name) || ++count > kNamedFiles) continue;
    text += (text.empty() ? "" : ", ") + name;
  }
  if (count > kNamedFiles) text += " and " + std::to_string(count - kNamedFiles) + " more";
  return text;
}

}  // namespace

std::string name_of_local(std::int64_t global_step) { return kPrefix + std::to_string(global_step); }

bool is_name_of_local(const fs::path& folder) { return folder.filename().string().starts_with(kPrefix); }

std::vector<LocalCandidate> find_local(const fs::path& root, const std::vector<std::string>& runs,
                                       const FolderNodes& nodes, const Communicator& communicator) {
  const auto wanted = nlohmann::json::parse(communicator.broadcast_bytes(nlohmann::json(runs).dump()))
                          .get<std::vector<std::string>>();
  const auto inventories =
      communicator.all_gather_bytes(nodes.leads() ? inventory(root, wanted) : std::string());
  std::map<std::pair<std::string, std::string>, LocalCandidate> all;
  for (int node = 0; node < nodes.count(); ++node) {
    for (const auto& entry :
         nlohmann::json::parse(inventories[static_cast<std::size_t>(nodes.leader_of(node))]))
      add_to(all, entry, node);
  }
  std::vector<LocalCandidate> found;
  for (auto& [key, candidate] : all) found.push_back(std::move(candidate));
  std::ranges::stable_sort(found, std::ranges::greater(), &LocalCandidate::written);
  return found;
}

std::string lost_files(const fs::path& root, const LocalCandidate& candidate, const FolderNodes& nodes,
                       const Communicator& communicator) {
  std::set<std::string> held;
  for (const auto& [node, files] : candidate.held)
    for (const auto& [name, bytes] : files) held.insert(name);
  if (held.size() == candidate.files) return {};
  const int teller =
      nodes.leader_of(candidate.held.begin()->first);  // the leader of a node that has the manifest
  const auto folder = root / candidate.place;
  const auto texts = read_together(communicator, folder, [&] {
    return communicator.rank() == teller ? names_of_lost(folder, held) : std::string();
  });
  return texts[static_cast<std::size_t>(teller)];
}

void remove_unfinished(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with('.')) remove_or_warn(entry.path());
}

}  // namespace lockstep::detail
