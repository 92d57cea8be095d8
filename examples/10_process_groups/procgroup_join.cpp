// Two processes find each other. Start one per terminal:
//   MASTER_ADDR=localhost MASTER_PORT=12355 procgroup_join --rank=0 --world-size=2
//   MASTER_ADDR=localhost MASTER_PORT=12355 procgroup_join --rank=1 --world-size=2
#include "tutorial.h"

namespace ls = lockstep;

struct Args {
  std::optional<int> rank = {};
  std::optional<int> world_size = {};
  std::string init_method = "env://";
};

void describe(ls::OptionVisitor& v, Args& args) {
  v.field("rank", args.rank, "This process's rank; else the variable RANK");
  v.field("world-size", args.world_size, "Number of processes; else the variable WORLD_SIZE");
  v.field("init-method", args.init_method, "Where they meet: env://, tcp://HOST:PORT or file:///PATH");
}

int main(int argc, char** argv) {
  return ls::run_rank([&] {
    const auto args = tutorial::parse_args<Args>(argc, argv);

    const auto group = ls::init_process_group({.backend = "gloo",
                                               .rank = args.rank,
                                               .world_size = args.world_size,
                                               .init_method = args.init_method});

    std::cout << "Rank " << group.rank() << " has joined the process group!" << std::endl;
  });
}
