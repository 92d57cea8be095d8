// One rank as a process: comm_rank CASE RANK WORLD PORT. Prints "CLASS TEXT" of the error it met, or
// "ok"; exits with 0 in both cases. CASE is what the last rank dies in: backward, or see kCollectives.
//
// Or a launch of two ranks: comm_rank CASE, which prints "ok" if both of them could do as CASE says.
#include <lockstep/comm/init.h>
#include <lockstep/parallel/ddp/ddp_engine.h>

#include <torch/torch.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/cluster/detect.h>
#include <lockstep/launch/join.h>
#include <lockstep/launch/launch.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/strategy/strategy_options.h>

namespace {

namespace ls = lockstep;

using Tensors = std::vector<at::Tensor>;

Tensors several(std::int64_t numel) { return {at::ones({numel}), at::ones({numel}), at::ones({numel})}; }

// What the ranks call; the last one is dead by then. Messages go to it and come from it.
const std::map<std::string, std::function<void(const ls::Communicator&, int last)>> kCollectives = {
    {"all_reduce", [](const auto& comm, int) { comm.all_reduce(at::ones({100'000})); }},
    {"reduce", [](const auto& comm, int last) { comm.reduce(at::ones({100'000}), last); }},
    {"broadcast", [](const auto& comm, int last) { comm.broadcast(at::ones({100'000}), last); }},
    {"all_gather", [](const auto& comm, int) { comm.all_gather(at::ones({300'000}), at::ones({100'000})); }},
    {"all_gather_list",
     [](const auto& comm, int) { comm.all_gather(several(100'000), at::ones({100'000})); }},
    {"gather", [](const auto& comm, int last) { comm.gather(Tensors(), at::ones({100'000}), last); }},
    {"scatter", [](const auto& comm, int last) { comm.scatter(at::ones({100'000}), Tensors(), last); }},
    {"reduce_scatter",
     [](const auto& comm, int) { comm.reduce_scatter(at::ones({100'000}), at::ones({300'000})); }},
    {"all_to_all", [](const auto& comm, int) { comm.all_to_all(at::ones({300'000}), at::ones({300'000})); }},
    {"all_to_all_list", [](const auto& comm, int) { comm.all_to_all(several(9), several(9)); }},
    {"barrier", [](const auto& comm, int) { comm.barrier(); }},
    {"monitored_barrier", [](const auto& comm, int) { comm.monitored_barrier(std::chrono::minutes(10)); }},
    {"send", [](const auto& comm, int last) { comm.send(at::ones({100'000}), last); }},
    {"recv", [](const auto& comm, int last) { comm.recv(at::ones({100'000}), last); }},
    {"async",
     [](const auto& comm, int) {
       const auto first = comm.all_reduce_async(at::ones({100'000}));
       const auto second = comm.all_reduce_async(at::ones({300'000}));
       second.wait();
     }},
};

void run(const std::string& name, int rank, int world_size, int port) {
  const auto comm = ls::init_communicator(
      {.main_port = port, .rank = rank, .world_size = world_size, .timeout = std::chrono::seconds(60)});
  torch::nn::Linear layer(8, 8);
  ls::DdpEngine engine(*layer, comm);
  comm.barrier();
  if (rank == world_size - 1) std::raise(SIGKILL);
  if (name != "backward") return kCollectives.at(name)(comm, world_size - 1);
  const auto loss = layer->forward(at::ones({4, 8})).sum();
  engine.backward(loss);
}

std::shared_ptr<ls::Strategy> join() {
  auto strategy = ls::make_strategy(ls::Ddp{.timeout = std::chrono::seconds(30)}, 2);
  strategy->setup_environment(*ls::detect_environment(), {.devices = 2});
  return strategy;
}

void expect_sum_of_two(const ls::Communicator& comm) {
  const auto tensor = at::ones({100'000});
  comm.all_reduce(tensor);
  if (tensor[99'999].item<int>() != 2) throw std::runtime_error("a wrong sum");
}

// Groups one after the other, and two at once.
void join_again_and_again() {
  for (int i = 0; i < 2; ++i) {
    const auto strategy = join();
    expect_sum_of_two(strategy->communicator());
    strategy->communicator().close();
  }
  const auto outer = join();
  {
    const auto inner = join();
    const auto tensor = at::ones({3});
    const auto work = outer->communicator().all_reduce_async(tensor);
    expect_sum_of_two(inner->communicator());
    work.wait();
    inner->communicator().close();
  }
  expect_sum_of_two(outer->communicator());
  outer->communicator().close();
}

// The descriptors that a program started by this rank finds open.
long count_inherited() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> program(::popen("ls /proc/self/fd | wc -l", "r"),
                                                                &::pclose);
  long count = 0;
  if (!program || std::fscanf(program.get(), "%ld", &count) != 1) throw std::runtime_error("ls");
  return count;
}

void start_programs() {
  const auto before = count_inherited();
  const auto strategy = join();
  expect_sum_of_two(strategy->communicator());
  const auto more = count_inherited() - before;
  if (more > 0) throw std::runtime_error(std::to_string(more) + " descriptors are inherited");
  if (ls::env::get("LOCKSTEP_LISTEN_FD")) throw std::runtime_error("LOCKSTEP_LISTEN_FD is inherited");
  strategy->communicator().barrier();
  strategy->communicator().close();
}

int launch(const std::string& name) {
  const int status = ls::launch_forked({.nprocs = 2}, [&] {
    return ls::run_rank([&] {
      at::set_num_threads(1);
      if (name == "again") join_again_and_again();
      if (name == "programs") start_programs();
    });
  });
  if (status == 0) std::cout << "ok\n";
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) return launch(argv[1]);
  if (argc != 5) return 2;
  at::set_num_threads(1);
  try {
    run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]));
    std::cout << "ok\n";
  } catch (const ls::PeerLost& error) {
    std::cout << "PeerLost " << error.what() << "\n";
  } catch (const ls::Timeout& error) {
    std::cout << "Timeout " << error.what() << "\n";
  } catch (const std::exception& error) {
    std::cout << "other " << error.what() << "\n";
  }
}
