// The ranks of pool_run.py: a ClusterEnvironment for a scheduler that lockstep does not know.
#pragma once

#include <lockstep/lockstep.h>

#include <filesystem>
#include <optional>
#include <string>

namespace ls = lockstep;

class PoolEnvironment final : public ls::ClusterEnvironment {
 public:
  /// Whether the pool has started this process.
  static bool detect() { return ls::env::get("POOL_JOB").has_value(); }

  /// Reads what the pool tells its tasks. @throws ConfigError for a variable that is missing
  PoolEnvironment()
      : job_(ls::env::get("POOL_JOB").value_or("")),
        tasks_(static_cast<int>(ls::env::require_int("POOL_TASKS"))),
        task_(static_cast<int>(ls::env::require_int("POOL_TASK"))),
        port_(static_cast<int>(ls::env::require_int("POOL_PORT"))) {}

  std::string name() const override { return "pool"; }

  // The pool has started a process for each rank, so that the library starts none.
  bool creates_processes_externally() const override { return true; }

  std::string main_address() const override { return "127.0.0.1"; }  // the pool has one machine
  int main_port() const override { return port_; }

  int world_size() const override { return tasks_; }
  int global_rank() const override { return task_; }
  int local_rank() const override { return task_; }
  int node_rank() const override { return 0; }
  std::optional<int> local_world_size() const override { return tasks_; }

  // Flags may repeat what the pool says, but not contradict it.
  void validate_settings(int num_devices, int num_nodes) const override {
    if (num_devices * num_nodes == tasks_) return;
    throw ls::ConfigError("pool", {.what = "the settings do not match the tasks that the pool has started",
                                   .expected = "devices * num_nodes = " + std::to_string(tasks_),
                                   .got = std::to_string(num_devices * num_nodes)});
  }

  // Gives the task's place back; called once in each rank, also when it fails.
  void teardown() override { std::filesystem::remove(job_ / ("task_" + std::to_string(task_))); }

 private:
  std::filesystem::path job_;
  int tasks_, task_, port_;
};
