// hosts_case MEBIBYTES CALLS: all-reduces of that size among the ranks of a job, which check what they get.
// For tests that count what passes between hosts.
#include <lockstep/comm/init.h>
#include <lockstep/torch.h>

#include <cstdio>
#include <cstdlib>

#include <lockstep/launch/join.h>

namespace {

namespace ls = lockstep;

bool is_sum_right(const ls::Communicator& group, const at::Tensor& tensor) {
  tensor.fill_(group.rank() + 1);
  group.all_reduce(tensor);
  return tensor.eq(group.size() * (group.size() + 1) / 2).all().item<bool>();
}

void run(std::int64_t mebibytes, int calls) {
  at::set_num_threads(1);
  const auto group = ls::init_process_group();
  const auto tensor = at::empty({mebibytes << 18});
  for (int call = 0; call < calls; ++call)
    if (!is_sum_right(group, tensor)) throw std::runtime_error("a wrong sum");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return ls::run_rank([&] { run(std::atoll(argv[1]), std::atoi(argv[2])); });
}
