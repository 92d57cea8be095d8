#include <lockstep/cluster/torchelastic_environment.h>

#include <cstdint>
#include <iostream>

#include <lockstep/base/error.h>

#include "cluster/variables.h"

namespace lockstep {
namespace {

constexpr std::string_view kSetBy = "torchrun";
constexpr const char* kDefaultAddress = "127.0.0.1";
constexpr int kDefaultPort = 12910;

int require_rank(const char* name, int world_size) {
  return cluster::require_int(
      {.name = name, .set_by = kSetBy, .max = world_size - 1, .max_name = "WORLD_SIZE - 1"});
}

void warn_if_unset(const std::string& name, const std::string& fallback, int rank) {
  if (cluster::is_set(name) || rank != 0) return;
  std::cerr << "lockstep: warning: " + name + " is not set; using " + fallback + "\n";
}

}  // namespace

bool TorchElasticEnvironment::detect() { return cluster::is_set("TORCHELASTIC_RUN_ID"); }

TorchElasticEnvironment::TorchElasticEnvironment()
    : world_size_(cluster::require_int({.name = "WORLD_SIZE", .set_by = kSetBy, .min = 1})),
      global_rank_(require_rank("RANK", world_size_)),
      local_rank_(require_rank("LOCAL_RANK", world_size_)),
      node_rank_(cluster::read_int({.name = "GROUP_RANK", .set_by = kSetBy}, 0)),
      main_address_(cluster::read_text("MASTER_ADDR", kSetBy, kDefaultAddress)),
      main_port_(cluster::read_int(
          {.name = "MASTER_PORT", .set_by = kSetBy, .min = 1, .max = cluster::kMaxPort}, kDefaultPort)) {
  warn_if_unset("MASTER_ADDR", kDefaultAddress, global_rank_);
  warn_if_unset("MASTER_PORT", std::to_string(kDefaultPort), global_rank_);
}

std::string TorchElasticEnvironment::name() const { return "torchelastic"; }
bool TorchElasticEnvironment::creates_processes_externally() const { return true; }
std::string TorchElasticEnvironment::main_address() const { return main_address_; }
int TorchElasticEnvironment::main_port() const { return main_port_; }
int TorchElasticEnvironment::world_size() const { return world_size_; }
int TorchElasticEnvironment::global_rank() const { return global_rank_; }
int TorchElasticEnvironment::local_rank() const { return local_rank_; }
int TorchElasticEnvironment::node_rank() const { return node_rank_; }

void TorchElasticEnvironment::validate_settings(int num_devices, int num_nodes) const {
  if (std::int64_t{num_devices} * num_nodes == world_size_) return;
  throw ConfigError(
      "cluster",
      {.what = "the settings do not match the ranks that torchrun started",
       .expected = "devices * num_nodes = WORLD_SIZE = " + std::to_string(world_size_),
       .got = "devices=" + std::to_string(num_devices) + " * num_nodes=" + std::to_string(num_nodes),
       .hint = "start torchrun with --nproc-per-node=" + std::to_string(num_devices) +
               " --nnodes=" + std::to_string(num_nodes) + ", or change devices and num_nodes"});
}

}  // namespace lockstep
