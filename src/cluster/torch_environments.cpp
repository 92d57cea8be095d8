#include <lockstep/cluster/torch_environments.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "base/sockets.h"
#include "cluster/variables.h"

namespace lockstep {
namespace {

constexpr std::string_view kStarter = "whoever starts the ranks; unset it to let lockstep start them";

int read_own(const char* name, int fallback) {
  return cluster::read_int({.name = name, .set_by = kStarter}, fallback);
}

std::optional<int> read_world_size() {
  if (!cluster::is_set("WORLD_SIZE")) return std::nullopt;
  return cluster::require_int({.name = "WORLD_SIZE", .set_by = kStarter, .min = 1});
}

[[noreturn]] void refuse_variable(const std::string& name, const std::string& expected,
                                  const std::string& hint) {
  throw ConfigError("cluster", {.what = "environment variable " + name,
                                .expected = expected,
                                .got = env::get(name).value_or("unset"),
                                .hint = hint});
}

std::string settings(int num_devices, int num_nodes) {
  return "devices=" + std::to_string(num_devices) + " * num_nodes=" + std::to_string(num_nodes);
}

void require_at_least(const std::string& what, int min, int value) {
  if (value >= min) return;
  throw ConfigError(
      "cluster",
      {.what = what, .expected = "an integer >= " + std::to_string(min), .got = std::to_string(value)});
}

}  // namespace

LightningEnvironment::LightningEnvironment()
    : external_(cluster::is_set("LOCAL_RANK")),
      main_address_(cluster::read_address(kStarter, "127.0.0.1")),
      main_port_(cluster::read_port(kStarter, 0)),
      local_rank_(read_own("LOCAL_RANK", 0)),
      node_rank_(read_own("NODE_RANK", read_own("GROUP_RANK", 0))),
      local_world_size_(cluster::read_local_world_size(kStarter)),
      told_world_size_(read_world_size()) {}

std::string LightningEnvironment::name() const { return "lightning"; }
bool LightningEnvironment::creates_processes_externally() const { return external_; }
std::string LightningEnvironment::main_address() const { return main_address_; }

int LightningEnvironment::main_port() const {
  if (main_port_ == 0) main_port_ = reserved_port();
  return main_port_;
}

int LightningEnvironment::world_size() const { return world_size_; }

void LightningEnvironment::set_world_size(int size) {
  require_at_least("world size", 1, size);
  world_size_ = size;
}

int LightningEnvironment::global_rank() const { return global_rank_; }

void LightningEnvironment::set_global_rank(int rank) {
  require_at_least("global rank", 0, rank);
  global_rank_ = rank;
}

int LightningEnvironment::local_rank() const { return local_rank_; }
int LightningEnvironment::node_rank() const { return node_rank_; }
std::optional<int> LightningEnvironment::local_world_size() const { return local_world_size_; }
// In Lightning's guide to clusters without a scheduler WORLD_SIZE is the number of nodes: this is allowed
// with NODE_RANK.
void LightningEnvironment::validate_settings(int num_devices, int num_nodes) const {
  const std::string node_rank = cluster::is_set("NODE_RANK") ? "NODE_RANK" : "GROUP_RANK";
  const std::int64_t ranks = std::int64_t{num_devices} * num_nodes;
  const bool counts_nodes = cluster::is_set(node_rank) && told_world_size_ == num_nodes;
  const bool is_alone =
      told_world_size_ == 1 && !external_;  // a single process, which may start the other ranks
  if (told_world_size_ && *told_world_size_ != ranks && !counts_nodes && !is_alone)
    refuse_variable(
        "WORLD_SIZE", settings(num_devices, num_nodes) + " = " + std::to_string(ranks),
        external_ ? "unset LOCAL_RANK to let lockstep start the ranks; or change devices and num_nodes"
                  : "set RANK as well, to start each rank yourself; or change devices and num_nodes; or "
                    "unset it");
  if (node_rank_ >= num_nodes)
    refuse_variable(node_rank, "0 to " + std::to_string(num_nodes - 1) + " (num_nodes - 1)",
                    "set num_nodes to the number of nodes, or unset the variable");
  if (!external_) return;
  if (local_rank_ >= local_world_size_.value_or(num_devices))
    refuse_variable("LOCAL_RANK",
                    "0 to " + std::to_string(local_world_size_.value_or(num_devices) - 1) +
                        (local_world_size_ ? " (LOCAL_WORLD_SIZE - 1)" : " (devices - 1)"),
                    "it is set by " + std::string(kStarter));
  if (ranks > 1 && main_port_ == 0)
    refuse_variable("MASTER_PORT", "an integer >= 1 and <= 65535, where rank 0 is met",
                    "it is set by whoever starts the ranks; unset LOCAL_RANK to let lockstep start them");
}

// Who has set RANK to 0 and WORLD_SIZE to 1 has set both: RANK alone would be refused afterwards.
void LightningEnvironment::teardown() {
  if (told_world_size_ != 1 || !cluster::is_set("RANK")) env::unset("WORLD_SIZE");
}

namespace {

constexpr std::string_view kSetWithRank =
    "whoever starts the ranks, together with RANK; unset RANK to let lockstep start them";
constexpr std::string_view kWhoever =
    "whoever starts the ranks; unset RANK and WORLD_SIZE to let lockstep start them";

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1" || address == "[::1]";
}

int read_node_rank(int fallback) {
  const int group = cluster::read_int({.name = "GROUP_RANK", .set_by = kWhoever}, fallback);
  return cluster::read_int({.name = "NODE_RANK", .set_by = kWhoever}, group);
}

void find_out_local_place(RankPlace& place) {
  const bool is_one_machine = place.world_size == 1 || is_loopback(place.main_address);
  place.local_world_size = cluster::read_local_world_size(kWhoever);
  if (!place.local_world_size && is_one_machine) place.local_world_size = place.world_size;
  const int most = place.local_world_size.value_or(place.world_size) - 1;
  place.local_rank = is_one_machine ? place.global_rank : 0;
  if (cluster::is_set("LOCAL_RANK") || place.local_rank > most)
    place.local_rank = cluster::require_int(
        {.name = "LOCAL_RANK",
         .set_by = kWhoever,
         .max = most,
         .max_name = place.local_world_size ? "LOCAL_WORLD_SIZE - 1" : "WORLD_SIZE - 1"});
  // Ranks are numbered node by node. Where nobody tells how many a node has, its first one stands for it.
  place.node_rank =
      read_node_rank(place.local_world_size ? place.global_rank / *place.local_world_size
                                            : std::max(place.global_rank - place.local_rank, 0));
}

RankPlace read_env_place() {
  RankPlace place;
  place.world_size = cluster::require_int({.name = "WORLD_SIZE", .set_by = kSetWithRank, .min = 1});
  place.global_rank = cluster::require_int(
      {.name = "RANK", .set_by = kWhoever, .max = place.world_size - 1, .max_name = "WORLD_SIZE - 1"});
  const bool must_meet = place.world_size > 1;
  place.main_address =
      must_meet ? cluster::require_address(kWhoever) : cluster::read_address(kWhoever, "127.0.0.1");
  place.main_port = must_meet ? cluster::require_port(kWhoever) : cluster::read_port(kWhoever, 0);
  find_out_local_place(place);
  return place;
}

}  // namespace

EnvEnvironment::EnvEnvironment()
    : ExternalEnvironment("env", "whoever has set RANK and WORLD_SIZE", read_env_place()) {}

bool EnvEnvironment::detect() {
  const auto rank = env::get("RANK");
  const auto launched = env::get("LOCKSTEP_LAUNCHED");
  if (!rank || launched == "fork" || launched == "reexec") return false;
  return rank != "0" || env::get("WORLD_SIZE") != "1";
}

namespace {

constexpr std::string_view kPyTorchJob = "the PyTorchJob of Kubeflow's training operator";

RankPlace read_pod_place() {
  const int world_size = cluster::require_int(
      {.name = "WORLD_SIZE", .set_by = kPyTorchJob, .min = 1, .max = cluster::kMaxRanks});
  const int rank = cluster::require_int(
      {.name = "RANK", .set_by = kPyTorchJob, .max = world_size - 1, .max_name = "WORLD_SIZE - 1"});
  return {.world_size = world_size,
          .global_rank = rank,
          .local_rank = 0,
          .node_rank = rank,
          .local_world_size = 1,
          .main_address = cluster::require_address(kPyTorchJob),
          .main_port = cluster::require_port(kPyTorchJob)};
}

}  // namespace

KubeflowEnvironment::KubeflowEnvironment()
    : ExternalEnvironment("kubeflow", std::string(kPyTorchJob), read_pod_place()) {}

namespace {

constexpr const char* kTorchrunMark = "TORCHELASTIC_RUN_ID";

// lockstep run sets the same variables as torchrun.
cluster::Source torchrun() {
  return {env::get("LOCKSTEP_LAUNCHED") == "run" ? "lockstep run" : "torchrun", kTorchrunMark};
}

constexpr const char* kDefaultAddress = "127.0.0.1";

int require_rank(const char* name, int world_size) {
  return cluster::require_int(
      {.name = name, .set_by = torchrun(), .max = world_size - 1, .max_name = "WORLD_SIZE - 1"});
}

void warn_if_unset(const std::string& name, const std::string& fallback, int rank) {
  if (cluster::is_set(name) || rank != 0) return;
  warn_once("cluster." + name, name + " is not set; using " + fallback);
}

void require_local_rank(const RankPlace& place) {
  if (!place.local_world_size) return;
  cluster::require_int({.name = "LOCAL_RANK",
                        .set_by = torchrun(),
                        .max = *place.local_world_size - 1,
                        .max_name = "LOCAL_WORLD_SIZE - 1"});
}

RankPlace read_torchrun_place() {
  const int world_size =
      cluster::require_int({.name = "WORLD_SIZE", .set_by = torchrun(), .min = 1, .max = cluster::kMaxRanks});
  RankPlace place{.world_size = world_size,
                  .global_rank = require_rank("RANK", world_size),
                  .local_rank = require_rank("LOCAL_RANK", world_size),
                  .node_rank = cluster::read_int({.name = "GROUP_RANK", .set_by = torchrun()}, 0),
                  .local_world_size = cluster::read_local_world_size(torchrun()),
                  .main_address = cluster::read_address(torchrun(), kDefaultAddress),
                  .main_port = cluster::read_port(torchrun(), cluster::kDefaultPort)};
  require_local_rank(place);
  warn_if_unset("MASTER_ADDR", kDefaultAddress, place.global_rank);
  warn_if_unset("MASTER_PORT", std::to_string(cluster::kDefaultPort), place.global_rank);
  return place;
}

}  // namespace

bool TorchElasticEnvironment::detect() { return cluster::is_set(kTorchrunMark); }

TorchElasticEnvironment::TorchElasticEnvironment()
    : ExternalEnvironment("torchelastic", std::string(torchrun().name), read_torchrun_place()) {}

void TorchElasticEnvironment::validate_settings(int num_devices, int num_nodes) const {
  if (std::int64_t{num_devices} * num_nodes == world_size()) return;
  const std::string launcher(torchrun().name);
  throw ConfigError(
      "cluster",
      {.what = "the settings do not match the ranks that " + launcher + " started",
       .expected = "devices * num_nodes = WORLD_SIZE = " + std::to_string(world_size()),
       .got = "devices=" + std::to_string(num_devices) + " * num_nodes=" + std::to_string(num_nodes),
       .hint = "start " + launcher + " with --nproc-per-node=" + std::to_string(num_devices) +
               " --nnodes=" + std::to_string(num_nodes) + ", or change devices and num_nodes"});
}

}  // namespace lockstep
