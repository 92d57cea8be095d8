// What the comparison of replicas between ranks costs, beside the all-reduce of as many bytes, on two ranks.
//
// Usage: bench_replica_check RESULTS TIMES.
#include <lockstep/base/env.h>
#include <lockstep/launch/join.h>
#include <lockstep/launch/launch.h>
#include <lockstep/lockstep.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "networks.h"
#include "parallel/replica_check.h"
#include "results.h"

namespace {

namespace ls = lockstep;

constexpr int kRanks = 2;
constexpr std::int64_t kWarmup = 20;

double ns_per_call(const ls::Communicator& comm, std::int64_t times, const std::function<void()>& call) {
  for (std::int64_t i = 0; i < kWarmup; ++i) call();
  comm.barrier();
  const auto start_ns = bench::now_ns();
  for (std::int64_t i = 0; i < times; ++i) call();
  return static_cast<double>(bench::now_ns() - start_ns) / static_cast<double>(times);
}

void run_rank(const bench::Results& results, std::int64_t times) {
  torch::set_num_threads(1);
  const auto comm = ls::init_communicator({.main_port = static_cast<int>(ls::env::require_int("MASTER_PORT")),
                                           .rank = static_cast<int>(ls::env::require_int("RANK")),
                                           .world_size = kRanks});
  const auto parameters = bench::mid_mlp()->parameters();
  ls::detail::ReplicaCheck check(comm, parameters.size(), [&](std::size_t number) {
    return ls::detail::Replica{.name = std::to_string(number), .tensor = parameters[number]};
  });
  const auto flags = at::zeros({static_cast<std::int64_t>(parameters.size())}, at::kByte);
  const auto measure = [&](const std::string& name, const std::function<void()>& call) {
    const double ns = ns_per_call(comm, times, call);
    if (comm.rank() == 0) results.add(name, ns);
  };
  measure("unwritten_compare", [&] { check.compare(); });
  measure("unwritten_all_reduce", [&] { comm.all_reduce(flags, ls::ReduceOp::kMax); });
  measure("mid_compare", [&] {
    for (std::size_t number = 0; number < parameters.size(); ++number) check.note_write(number);
    check.compare();
  });
  const auto gradients = torch::nn::utils::parameters_to_vector(parameters).detach();
  measure("mid_all_reduce", [&] { comm.all_reduce(gradients); });
  comm.close();
}

}  // namespace

int main(int, char** argv) {
  const bench::Results results(argv[1]);
  const std::int64_t times = std::atoi(argv[2]);
  return ls::launch_forked({.nprocs = kRanks},
                           [&] { return ls::run_rank([&] { run_rank(results, times); }); });
}
