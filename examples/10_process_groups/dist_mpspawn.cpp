// The program starts its processes itself: dist_mpspawn --world-size=8
#include "tutorial.h"

namespace ls = lockstep;

void setup_dist(int rank, int world_size) {
  const auto group = ls::init_process_group({.backend = "gloo", .rank = rank, .world_size = world_size});
  std::cout << "Process " << rank << " has joined the process group!" << std::endl;
}

int main(int argc, char** argv) {
  return ls::run_rank([&] {
    const auto args = tutorial::parse_args<tutorial::SpawnArgs>(argc, argv);

    tutorial::start(args, setup_dist, std::tuple(args.world_size));
  });
}
