// One C++ rank of a group whose other ranks are Python programs: peer_rank, with RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT in the environment. Rank r contributes r + 1; see peers_test.py for the rest.
#include <lockstep/lockstep.h>

#include <functional>
#include <iostream>
#include <string>

#include "program_case.h"

namespace ls = lockstep;

namespace peer_rank {

void require_equal(const std::string& what, const at::Tensor& got, const at::Tensor& expected) {
  if (got.equal(expected)) return;
  throw ls::Error("peer_rank", {.what = what + " gave wrong values"});
}

void require_refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const ls::CommError& error) {
    if (std::string(error.what()).find("ranks of PyTorch cannot reduce this") != std::string::npos) return;
    throw;
  }
  throw ls::Error("peer_rank", {.what = "what PyTorch does not know was not refused"});
}

void meet() {
  const auto group =
      ls::init_process_group({.timeout = std::chrono::seconds(60), .peers = ls::Peers::kPyTorch});
  const auto own = [&] { return at::full({5}, group.rank() + 1.0F); };

  const auto sum = own();
  group.all_reduce(sum);
  require_equal("all_reduce", sum, at::full({5}, 3.0F));
  const auto largest = at::full({2}, group.rank() + 1, at::kLong);
  group.all_reduce(largest, ls::ReduceOp::kMax);
  require_equal("all_reduce max", largest, at::full({2}, 2, at::kLong));
  const auto bits = at::full({2}, group.rank() + 1, at::kLong);
  group.all_reduce(bits, ls::ReduceOp::kBitOr);
  require_equal("all_reduce bit_or", bits, at::full({2}, 3, at::kLong));
  require_refusal([&] { group.all_reduce(at::ones({2}, at::kShort)); });  // which Gloo does not know
  for (int root = 0; root < 2; ++root) {
    const auto sent = own();
    group.broadcast(sent, root);
    require_equal("broadcast", sent, at::full({5}, root + 1.0F));
  }
  const auto all = at::empty({2, 5});
  group.all_gather(all, own());
  require_equal("all_gather", all, at::tensor({1.0F, 2.0F}).view({2, 1}).expand({2, 5}));
  const auto part = at::empty({5});
  group.reduce_scatter(part, at::arange(10.0F));
  require_equal("reduce_scatter", part, at::arange(5.0F).add(5.0F * group.rank()).mul(2));
  group.barrier();
  std::cout << "rank " << group.rank() << " met Python" << std::endl;
}

int start(int, char**) {
  at::set_num_threads(1);
  return ls::run_rank(meet);
}

const ProgramCase kCase{"peer_rank", start};

}  // namespace peer_rank
