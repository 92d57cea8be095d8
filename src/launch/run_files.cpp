#include "launch/run_files.h"

#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>

#include "launch/rank_observer.h"
#include "launch/run_directory_lock.h"

namespace lockstep::launch {
namespace {

using Json = nlohmann::ordered_json;

void write_json(const std::filesystem::path& path, const Json& json) {
  try {
    // An error text may hold any bytes.
    write_file_atomically(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } catch (const IoError& error) {
    std::cerr << "lockstep: warning: " + std::string(error.what()) + "\n";
  }
}

Json end_of(const RankProcess& process, int node, const RankStatus& status) {
  Json json = {{"rank", process.rank}, {"node", node}, {"pid", process.pid}};
  if (process.end->signal != 0) {
    json["signal"] = process.end->signal;
    json["signal_name"] = signal_name(process.end->signal);
  } else {
    json["exit_code"] = process.end->exit_code;
  }
  json["collective"] =
      std::string(status.collective, ::strnlen(status.collective, sizeof(status.collective)));
  json["sequence"] = status.sequence.load();
  json["in_collective"] = status.in_collective.load() != 0;
  json["step"] = status.optimizer_step.load();
  json["error"] = std::string(status.error, ::strnlen(status.error, sizeof(status.error)));
  return json;
}

}  // namespace

RunFiles::RunFiles(const LaunchOptions& options) : folder_(options.run_dir), node_(options.node_rank) {
  if (folder_.empty()) return;
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  if (failure) {
    throw IoError("launch", {.what = "cannot create run_dir " + folder_.string(), .got = failure.message()});
  }
  if (node_ == 0) hold_run_directory(folder_);  // refuses one in use; rank 0 holds it when it opens it
  std::filesystem::remove(file("failure"), failure);
}

void RunFiles::write_ranks(std::span<const RankProcess> ranks) const {
  if (folder_.empty()) return;
  Json json = Json::object();
  for (const auto& process : ranks) json[std::to_string(process.rank)] = process.pid;
  write_json(file("ranks"), json);
}

void RunFiles::write_failure(const RankProcess& root_cause, const std::string& cause,
                             std::span<const RankProcess> ranks, const StatusTable& statuses) const {
  if (folder_.empty()) return;
  Json json = end_of(root_cause, node_, statuses[root_cause.local_rank]);
  json["message"] = cause;
  json["others"] = Json::array();
  for (const auto& process : ranks) {
    if (&process == &root_cause) continue;
    json["others"].push_back(end_of(process, node_, statuses[process.local_rank]));
    json["others"].back()["stopped_by_launcher"] = process.told_to_stop;
  }
  write_json(file("failure"), json);
}

void write_lone_failure(const std::filesystem::path& run_dir, int exit_code) {
  const RankProcess self{.pid = ::getpid(), .end = ProcessEnd{.exit_code = exit_code}};
  Json json = end_of(self, 0, rank_status());
  json["message"] = describe_end(self, 0, rank_status());
  json["others"] = Json::array();
  write_json(run_dir / "failure.json", json);
}

std::filesystem::path RunFiles::file(const std::string& stem) const {
  return folder_ / (stem + (node_ == 0 ? "" : ".node-" + std::to_string(node_)) + ".json");
}

}  // namespace lockstep::launch
