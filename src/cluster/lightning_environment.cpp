#include <lockstep/cluster/lightning_environment.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "base/sockets.h"
#include "cluster/variables.h"

namespace lockstep {
namespace {

constexpr std::string_view kSetBy = "whoever starts the ranks; unset it to let lockstep start them";

int read(const char* name, int fallback) {
  return cluster::read_int({.name = name, .set_by = kSetBy}, fallback);
}

std::optional<int> read_world_size() {
  if (!cluster::is_set("WORLD_SIZE")) return std::nullopt;
  return cluster::require_int({.name = "WORLD_SIZE", .set_by = kSetBy, .min = 1});
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
      main_address_(cluster::read_address(kSetBy, "127.0.0.1")),
      main_port_(cluster::read_port(kSetBy, 0)),
      local_rank_(read("LOCAL_RANK", 0)),
      node_rank_(read("NODE_RANK", read("GROUP_RANK", 0))),
      local_world_size_(cluster::read_local_world_size(kSetBy)),
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
        "set RANK as well, to start each rank yourself; or change devices and num_nodes; or unset it");
  if (node_rank_ >= num_nodes)
    refuse_variable(node_rank, "0 to " + std::to_string(num_nodes - 1) + " (num_nodes - 1)",
                    "set num_nodes to the number of nodes, or unset the variable");
  if (!external_) return;
  if (local_rank_ >= local_world_size_.value_or(num_devices))
    refuse_variable("LOCAL_RANK",
                    "0 to " + std::to_string(local_world_size_.value_or(num_devices) - 1) +
                        (local_world_size_ ? " (LOCAL_WORLD_SIZE - 1)" : " (devices - 1)"),
                    "it is set by " + std::string(kSetBy));
  if (ranks > 1 && main_port_ == 0)
    refuse_variable("MASTER_PORT", "an integer >= 1 and <= 65535, where rank 0 is met",
                    "it is set by whoever starts the ranks; unset LOCAL_RANK to let lockstep start them");
}

void LightningEnvironment::teardown() { env::unset("WORLD_SIZE"); }

}  // namespace lockstep
