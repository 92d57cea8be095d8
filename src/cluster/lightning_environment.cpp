#include <lockstep/cluster/lightning_environment.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "base/reserved_port.h"
#include "cluster/variables.h"

namespace lockstep {
namespace {

constexpr std::string_view kSetBy = "whoever starts the ranks; unset it to let lockstep start them";

int read(const char* name, int fallback) {
  return cluster::read_int({.name = name, .set_by = kSetBy}, fallback);
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
      local_world_size_(cluster::read_local_world_size(kSetBy)) {}

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
void LightningEnvironment::teardown() { env::unset("WORLD_SIZE"); }

}  // namespace lockstep
