// One rank as a process: comm_rank CASE RANK WORLD PORT. Prints "CLASS TEXT" of the error it met, or
// "ok"; exits with 0 in both cases. CASE is what the last rank dies in: all_reduce, broadcast,
// all_gather, reduce_scatter, barrier, async or backward.
//
// Or a launch of two ranks: comm_rank CASE, which prints "ok" if both of them could do as CASE says.
#include <lockstep/comm/init.h>
#include <lockstep/parallel/ddp/ddp_engine.h>

#include <torch/torch.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/cluster/detect.h>
#include <lockstep/launch/launch.h>
#include <lockstep/launch/run_rank.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/strategy/strategy_options.h>

namespace {

namespace ls = lockstep;

void run_collective(const ls::Communicator& comm, const std::string& name) {
  const auto part = at::ones({100'000});
  const auto whole = at::ones({100'000 * comm.size()});
  if (name == "all_reduce") comm.all_reduce(part);
  if (name == "broadcast") comm.broadcast(part, comm.size() - 1);
  if (name == "all_gather") comm.all_gather(whole, part);
  if (name == "reduce_scatter") comm.reduce_scatter(part, whole);
  if (name == "barrier") comm.barrier();
  if (name == "async") {
    const auto first = comm.all_reduce_async(part);
    const auto second = comm.all_reduce_async(whole);
    second.wait();
  }
}

void run(const std::string& name, int rank, int world_size, int port) {
  const auto comm = ls::init_communicator(
      {.main_port = port, .rank = rank, .world_size = world_size, .timeout = std::chrono::seconds(60)});
  torch::nn::Linear layer(8, 8);
  ls::DdpEngine engine(*layer, comm);
  comm.barrier();
  if (rank == world_size - 1) std::raise(SIGKILL);
  if (name != "backward") return run_collective(comm, name);
  const auto loss = layer->forward(at::ones({4, 8})).sum();
  engine.prepare_backward(loss);
  loss.backward();
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
