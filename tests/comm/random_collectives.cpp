// random_collectives RANKS CALLS SEED [JOBS]: as many collectives as that, drawn at random, among as many
// processes.
// Every rank draws the same: kinds, sizes around the borders of slots and messages, dtypes, operations,
// groups, and whether it waits at once. Each compares what it gets, to the bit, with what follows from what
// the others have given, which it knows, too. Prints which call was wrong, and exits with an error then.
//
// With JOBS there are so many jobs at once, and in every fifth one the last rank kills itself half-way, so
// that the job has to fail.
#include <lockstep/comm/init.h>
#include <lockstep/comm/packed_collectives.h>
#include <lockstep/torch.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/launch/join.h>
#include <lockstep/launch/launch.h>

#include "combined.h"

namespace {

namespace ls = lockstep;
using ls::ReduceOp;
using ls::test::combined;
using ls::test::divided;
using Tensors = std::vector<at::Tensor>;

enum class Kind {
  kAllReduce,
  kAllReduceList,
  kReduce,
  kReduceScatter,
  kBroadcast,
  kAllGather,
  kAllGatherList,
  kGather,
  kScatter,
  kAllToAll,
  kAllToAllList,
  kBarrier,
  kCount
};

constexpr at::ScalarType kDtypes[] = {at::kFloat,    at::kFloat,        at::kDouble, at::kHalf,
                                      at::kBFloat16, at::kComplexFloat, at::kLong,   at::kInt,
                                      at::kShort,    at::kChar,         at::kByte,   at::kBool};
constexpr std::int64_t kPoolBytes = 4 << 20;  // of each dtype

bool is_integral(at::ScalarType dtype) { return at::isIntegralType(dtype, /*includeBool=*/true); }

bool is_defined_for(ReduceOp op, at::ScalarType dtype) {
  if (op >= ReduceOp::kBitAnd) return is_integral(dtype);
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) return !at::isComplexType(dtype);
  if (dtype == at::kBool) return false;
  if (op == ReduceOp::kProduct) return !at::isComplexType(dtype);
  return op == ReduceOp::kSum || !is_integral(dtype);
}

// What a call is; the same on every rank.
struct Plan {
  Kind kind;
  std::size_t group;
  at::ScalarType dtype;
  ReduceOp op;
  int root;
  std::int64_t elements;
  std::uint64_t salt;
  bool is_async;
};

class Draw {
 public:
  Draw(std::uint64_t seed, std::size_t groups) : random_(seed), groups_(groups) {}

  Plan next() {
    Plan plan{.kind = static_cast<Kind>(below(static_cast<std::size_t>(Kind::kCount))),
              .group = below(2) ? 0 : below(groups_),
              .dtype = kDtypes[below(std::size(kDtypes))],
              .op = ReduceOp::kSum,
              .root = static_cast<int>(below(8)),
              .elements = 0,
              .salt = random_(),
              .is_async = below(4) == 0};
    do plan.op = below(2) ? ReduceOp::kSum : static_cast<ReduceOp>(below(8));
    while (!is_defined_for(plan.op, plan.dtype));
    plan.elements = elements(c10::elementSize(plan.dtype));
    return plan;
  }

 private:
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(random_() % limit); }

  // Most are small; the others lie about the borders of inline messages, slots, and their parts.
  std::int64_t elements(std::size_t element_size) {
    const auto kind = below(20);
    if (kind < 12) return static_cast<std::int64_t>(below(kind < 6 ? 9 : 2000));
    constexpr std::size_t kInline = 16 << 10, kRootAlone = 32 << 10, kSlot = 256 << 10;
    const std::size_t borders[] = {kInline,   kRootAlone, kSlot / 8, kSlot / 3,
                                   kSlot / 2, kSlot,      2 * kSlot, 5 * kSlot};
    const auto bytes = borders[below(kind < 19 ? 6 : 8)] + below(300);
    return static_cast<std::int64_t>((bytes - std::min<std::size_t>(bytes, 150)) / element_size);
  }

  std::mt19937_64 random_;
  std::size_t groups_;
};

// Numbers that ranks give, all of them known to all. Made before processes are forked, which then share them.
class Pool {
 public:
  Pool() {
    auto generator = at::detail::createCPUGenerator(1);
    for (const auto dtype : kDtypes) {
      auto& all = of(dtype);
      const bool is_complex = at::isComplexType(dtype);
      const auto elements = kPoolBytes / static_cast<std::int64_t>(c10::elementSize(dtype));
      const auto reals = at::randn({is_complex ? 2 * elements : elements}, generator) * 3;
      all = is_complex           ? at::view_as_complex(reals.view({-1, 2})).to(dtype)
            : dtype == at::kBool ? reals.gt(1)
            : is_integral(dtype) ? reals.mul(20).to(at::kLong).to(dtype)
                                 : reals.to(dtype);
    }
  }

  // How many elements of a call's one rank may give, if `parts` times as many are needed.
  std::int64_t at_most(const Plan& plan, int parts) const {
    return std::min(plan.elements, of(plan.dtype).numel() / parts);
  }

  // What `rank` gives in the call of that salt: a part of its own memory.
  at::Tensor given(const Plan& plan, int rank, std::int64_t elements) const {
    const auto& all = of(plan.dtype);
    const auto room = static_cast<std::uint64_t>(all.numel() - elements + 1);
    const auto begin = (plan.salt + static_cast<std::uint64_t>(rank) * 0x9e3779b97f4a7c15U) % room;
    return all.narrow(0, static_cast<std::int64_t>(begin), elements);
  }

 private:
  const at::Tensor& of(at::ScalarType dtype) const { return by_dtype_[static_cast<std::size_t>(dtype)]; }
  at::Tensor& of(at::ScalarType dtype) { return by_dtype_[static_cast<std::size_t>(dtype)]; }

  at::Tensor by_dtype_[static_cast<std::size_t>(at::ScalarType::NumOptions)];
};

at::ScalarType widened(at::ScalarType dtype) {
  if (is_integral(dtype)) return at::kLong;
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

// As docs/decisions/001-ordered-sums.md says: neighbours, then neighbours of those; wide; rounded once.
at::Tensor reduced(Tensors rows, ReduceOp op) {
  const auto dtype = rows[0].scalar_type();
  const auto count = static_cast<int>(rows.size());
  for (auto& row : rows) row = row.to(widened(dtype));
  while (rows.size() > 1) {
    Tensors pairs;
    for (std::size_t i = 0; i + 1 < rows.size(); i += 2) pairs.push_back(combined(rows[i], rows[i + 1], op));
    if (rows.size() % 2 == 1) pairs.push_back(rows.back());
    rows = std::move(pairs);
  }
  return (op == ReduceOp::kAvg ? divided(rows[0], count) : rows[0]).to(dtype);
}

void require_equal(const at::Tensor& got, const at::Tensor& expected, const char* what) {
  const auto a = got.contiguous(), b = expected.contiguous();
  if (a.numel() == b.numel() &&
      (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0))
    return;
  throw ls::Error("random_collectives", {.what = std::string("a wrong result of ") + what});
}

// A call that was begun: what ends it, and compares.
using Rest = std::function<void()>;

class RandomRank {
 public:
  RandomRank(const ls::Communicator& world, const Pool& pool, std::uint64_t seed)
      : groups_(groups_of(world)),
        draw_(seed, groups_.size()),
        pool_(pool),
        pauses_(seed + static_cast<std::uint64_t>(world.rank())) {}

  void run(std::int64_t calls) {
    for (call_ = 0; call_ < calls; ++call_) {
      const auto plan = draw_.next();
      const auto& group = groups_[plan.group];
      if (!group) continue;
      if (!plan.is_async) finish();
      pause();
      rests_.push_back({call_, begin(*group, plan)});
      if (!plan.is_async || rests_.size() > 4) finish();
    }
    finish();
  }

  std::string place() const { return "call " + std::to_string(call_); }

 private:
  using Groups = std::vector<std::optional<ls::Communicator>>;

  // All ranks, those of even numbers, the last half, and the first two.
  static Groups groups_of(const ls::Communicator& world) {
    Groups groups{world};
    if (world.size() < 2) return groups;
    std::vector<int> even, last;
    for (int rank = 0; rank < world.size(); ++rank) {
      if (rank % 2 == 0) even.push_back(rank);
      if (2 * rank >= world.size()) last.push_back(rank);
    }
    groups.push_back(world.new_group(even));
    groups.push_back(world.new_group(last));
    groups.push_back(world.new_group({0, 1}));
    return groups;
  }

  void finish() {
    for (const auto& [call, rest] : rests_) {
      call_ = std::max(call, call_);
      rest();
    }
    rests_.clear();
  }

  // Some ranks come later than others: by what a flag spins, or sleeps.
  void pause() {
    const auto kind = pauses_() % 400;
    if (kind >= 8) return;
    std::this_thread::sleep_for(std::chrono::microseconds(pauses_() % (kind == 0 ? 15'000 : 300)));
  }

  Rest begin(const ls::Communicator& comm, const Plan& plan);
  Rest begin_sum(const ls::Communicator& comm, const Plan& plan);
  Rest begin_list(const ls::Communicator& comm, const Plan& plan);
  Rest begin_copy(const ls::Communicator& comm, const Plan& plan);
  Rest exchange(const ls::Communicator& comm, const Plan& plan);

  // Which part of a rank's memory another one gets: of uneven sizes.
  at::Tensor parcel(const Plan& plan, int from, int to) {
    const auto elements = plan.elements * ((from + 2 * to + static_cast<int>(plan.salt % 5)) % 4) / 3;
    return pool_.given(plan, from * 8 + to, elements);
  }
  Tensors from_all(const Plan& plan, int size, std::int64_t elements) {
    Tensors rows;
    for (int rank = 0; rank < size; ++rank) rows.push_back(pool_.given(plan, rank, elements));
    return rows;
  }

  Groups groups_;
  Draw draw_;
  const Pool& pool_;
  std::mt19937_64 pauses_;
  std::deque<std::pair<std::int64_t, Rest>> rests_;
  std::int64_t call_ = 0;
};

Rest RandomRank::begin(const ls::Communicator& comm, const Plan& plan) {
  switch (plan.kind) {
    case Kind::kAllReduceList:
      return begin_list(comm, plan);
    case Kind::kAllReduce:
    case Kind::kReduce:
    case Kind::kReduceScatter:
      return begin_sum(comm, plan);
    case Kind::kBroadcast:
    case Kind::kAllGather:
      return begin_copy(comm, plan);
    case Kind::kBarrier:
    case Kind::kCount:
      comm.barrier();
      return [] {};
    default:
      return exchange(comm, plan);
  }
}

Rest RandomRank::begin_sum(const ls::Communicator& comm, const Plan& plan) {
  const int size = comm.size(), rank = comm.rank(), root = plan.root % size;
  if (plan.kind == Kind::kReduceScatter) {
    const auto elements = pool_.at_most(plan, size);
    const auto rows = from_all(plan, size, elements * size);
    const auto input = rows[static_cast<std::size_t>(rank)].clone();
    const auto part = at::empty({elements}, input.options());
    comm.reduce_scatter(part, input, plan.op);
    return [=] {
      Tensors parts;
      for (const auto& row : rows) parts.push_back(row.narrow(0, rank * elements, elements));
      require_equal(part, reduced(parts, plan.op), "reduce_scatter");
      require_equal(input, rows[static_cast<std::size_t>(rank)], "reduce_scatter: its input");
    };
  }
  const auto rows = from_all(plan, size, plan.elements);
  const auto tensor = rows[static_cast<std::size_t>(rank)].clone();
  if (plan.kind == Kind::kReduce) {
    comm.reduce(tensor, root, plan.op);
    return [=] {
      require_equal(tensor, rank == root ? reduced(rows, plan.op) : rows[static_cast<std::size_t>(rank)],
                    "reduce");
    };
  }
  auto work = comm.all_reduce_async(tensor, plan.op);
  if (!plan.is_async) work.wait();
  return [=] {
    work.wait();
    require_equal(tensor, reduced(rows, plan.op), "all_reduce");
  };
}

// A list of tensors that are reduced as one: where the cuts are is drawn, too, and some are empty.
Rest RandomRank::begin_list(const ls::Communicator& comm, const Plan& plan) {
  const auto rows = from_all(plan, comm.size(), plan.elements);
  const auto own = rows[static_cast<std::size_t>(comm.rank())].clone();
  Tensors pieces;
  std::mt19937_64 cuts(plan.salt);
  for (std::int64_t begin = 0; begin < plan.elements;) {
    const auto rest = static_cast<std::uint64_t>(plan.elements - begin);
    const auto elements =
        pieces.size() == 20 ? plan.elements - begin : static_cast<std::int64_t>(cuts() % (rest / 2 + 2));
    pieces.push_back(own.narrow(0, begin, std::min(elements, plan.elements - begin)).clone());
    begin += pieces.back().numel();
  }
  if (pieces.empty()) pieces.push_back(own);
  auto work = ls::all_reduce_coalesced_async(comm, pieces, plan.op);
  if (!plan.is_async) work.wait();
  return [=] {
    work.wait();
    require_equal(at::cat(pieces), reduced(rows, plan.op), "all_reduce_coalesced");
  };
}

Rest RandomRank::begin_copy(const ls::Communicator& comm, const Plan& plan) {
  const int size = comm.size(), rank = comm.rank(), root = plan.root % size;
  const auto rows = from_all(plan, size, plan.elements);
  const auto own = rows[static_cast<std::size_t>(rank)].clone();
  if (plan.kind == Kind::kBroadcast) {
    comm.broadcast(own, root);
    return [=] { require_equal(own, rows[static_cast<std::size_t>(root)], "broadcast"); };
  }
  const auto all = at::empty({plan.elements * size}, own.options());
  comm.all_gather(all, own);
  return [=] { require_equal(all, at::cat(rows), "all_gather"); };
}

Rest RandomRank::exchange(const ls::Communicator& comm, const Plan& plan) {
  const int size = comm.size(), rank = comm.rank(), root = plan.root % size;
  const bool is_to_all = plan.kind == Kind::kAllGatherList, is_from_root = plan.kind == Kind::kScatter;
  Tensors given, taken, expected;
  std::vector<std::int64_t> gives, takes;
  for (int other = 0; other < size; ++other) {
    given.push_back(parcel(plan, rank, is_to_all ? 0 : other).clone());
    expected.push_back(parcel(plan, other, is_to_all ? 0 : rank));
    taken.push_back(at::empty_like(expected.back()));
    gives.push_back(given.back().numel());
    takes.push_back(taken.back().numel());
  }
  const auto at_root = static_cast<std::size_t>(root);
  const auto compare_all = [=] { require_equal(at::cat(taken), at::cat(expected), "an exchange"); };
  if (is_to_all) return comm.all_gather(taken, given[0]), compare_all;
  if (plan.kind == Kind::kAllToAllList) return comm.all_to_all(taken, given), compare_all;
  if (plan.kind == Kind::kAllToAll) {
    const auto output = at::empty({at::cat(taken).numel()}, taken[0].options());
    comm.all_to_all(output, at::cat(given), takes, gives);
    return [=] { require_equal(output, at::cat(expected), "all_to_all"); };
  }
  if (is_from_root) {
    comm.scatter(taken[at_root], rank == root ? given : Tensors(), root);
    return [=] { require_equal(taken[at_root], expected[at_root], "scatter"); };
  }
  comm.gather(rank == root ? taken : Tensors(), given[at_root], root);
  return rank == root ? Rest(compare_all) : Rest([] {});
}

struct Job {
  int ranks;
  std::int64_t calls;
  std::uint64_t seed;
  bool loses_a_rank = false;
};

void run_rank(const Job& job, const Pool& pool) {
  at::set_num_threads(1);
  const auto comm = ls::init_communicator({.main_port = static_cast<int>(ls::env::require_int("MASTER_PORT")),
                                           .rank = static_cast<int>(ls::env::require_int("RANK")),
                                           .world_size = static_cast<int>(ls::env::require_int("WORLD_SIZE")),
                                           .timeout = std::chrono::minutes(2)});
  RandomRank rank(comm, pool, job.seed);
  try {
    rank.run(job.loses_a_rank ? job.calls / 2 : job.calls);
    if (job.loses_a_rank && comm.rank() == comm.size() - 1) std::raise(SIGKILL);
    if (job.loses_a_rank) rank.run(job.calls);
  } catch (const ls::Error& error) {
    std::fprintf(stderr, "%s of seed %llu: %s\n", rank.place().c_str(),
                 static_cast<unsigned long long>(job.seed), error.what());
    throw;
  }
  comm.close();
}

int run(const Job& job, const Pool& pool) {
  return ls::launch_forked({.nprocs = job.ranks}, [&] { return ls::run_rank([&] { run_rank(job, pool); }); });
}

// Returns how many ended otherwise than they should.
int run_at_once(const Job& job, int jobs, const Pool& pool) {
  std::vector<pid_t> pids;
  for (int i = 0; i < jobs; ++i) {
    const bool loses_a_rank = i % 5 == 4;
    pids.push_back(::fork());
    if (pids.back() != 0) continue;
    const int code =
        run({job.ranks, job.calls, job.seed + static_cast<std::uint64_t>(i), loses_a_rank}, pool);
    ::_exit((code != 0) == loses_a_rank ? 0 : 1);
  }
  int wrong = 0;
  for (const auto pid : pids) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (status != 0) ++wrong;
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  const Job job{
      .ranks = std::atoi(argv[1]), .calls = std::atoll(argv[2]), .seed = std::strtoull(argv[3], nullptr, 10)};
  at::set_num_threads(1);
  const Pool pool;
  if (argc == 4) return run(job, pool);
  const int wrong = run_at_once(job, std::atoi(argv[4]), pool);
  if (wrong > 0) std::fprintf(stderr, "%d jobs did not end as they should\n", wrong);
  return wrong > 0 ? 1 : 0;
}
