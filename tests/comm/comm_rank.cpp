// One rank as a process: comm_rank CASE RANK WORLD PORT. Prints "CLASS TEXT" of the error it met, or
// "ok"; exits with 0 in both cases. CASE is what the last rank dies in: all_reduce, broadcast,
// all_gather, reduce_scatter, barrier, async or backward.
#include <lockstep/comm/init.h>
#include <lockstep/parallel/ddp/ddp_engine.h>

#include <torch/torch.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

#include <lockstep/base/error.h>

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

}  // namespace

int main(int argc, char** argv) {
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
