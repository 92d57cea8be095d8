#include "comm/comm_case_ranks.h"

#include <lockstep/comm/init.h>
#include <lockstep/torch.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "comm/comm_case_phases.h"

namespace lockstep::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Call = std::function<void(const Communicator&, const at::Tensor&)>;

constexpr auto kJobTimeout = std::chrono::seconds(30);
constexpr auto kShortTimeout = std::chrono::seconds(1);  // of ranks that wait for an absent one

struct NamedCall {
  const char* name;
  Call call;
};

std::vector<at::Tensor> copies(const at::Tensor& tensor, int count) {
  std::vector<at::Tensor> all;
  for (int i = 0; i < count; ++i) all.push_back(tensor.clone());
  return all;
}

at::Tensor stacked(const at::Tensor& tensor, int count) { return at::stack(copies(tensor, count)); }

const std::vector<NamedCall>& calls() {
  static const std::vector<NamedCall> kCalls = {
      {"all_reduce", [](const auto& comm, const auto& x) { comm.all_reduce(x); }},
      {"broadcast", [](const auto& comm, const auto& x) { comm.broadcast(x, comm.size() - 1); }},
      {"all_gather", [](const auto& comm, const auto& x) { comm.all_gather(stacked(x, comm.size()), x); }},
      {"reduce_scatter",
       [](const auto& comm, const auto& x) { comm.reduce_scatter(x, stacked(x, comm.size())); }},
      {"reduce", [](const auto& comm, const auto& x) { comm.reduce(x, comm.size() - 1); }},
      {"gather",
       [](const auto& comm, const auto& x) {
         comm.gather(comm.rank() == 0 ? copies(x, comm.size()) : std::vector<at::Tensor>(), x);
       }},
      {"scatter",
       [](const auto& comm, const auto& x) {
         comm.scatter(x, comm.rank() == 0 ? copies(x, comm.size()) : std::vector<at::Tensor>());
       }},
      {"all_to_all", [](const auto& comm,
                        const auto& x) { comm.all_to_all(copies(x, comm.size()), copies(x, comm.size())); }},
      {"all_gather_list",
       [](const auto& comm, const auto& x) { comm.all_gather(copies(x, comm.size()), x); }},
      {"barrier", [](const auto& comm, const auto&) { comm.barrier(); }},
      {"async", [](const auto& comm, const auto& x) { comm.all_reduce_async(x).wait(); }},
  };
  return kCalls;
}

int signal_of(const CaseInput& input) { return input.name.starts_with("die") ? SIGKILL : SIGSTOP; }
bool is_at_phase(const CaseInput& input) { return input.name.ends_with("-at-phase"); }
bool is_on_hosts(const CaseInput& input) { return input.backend.find("-hosts") != std::string::npos; }

// Of these every rank raises each flag once.
constexpr const char* kCallsInPhases[] = {"all_reduce", "all_gather", "reduce_scatter", "reduce",
                                          "all_to_all"};

std::size_t call_in_phases(std::size_t number) {
  const auto* const name = kCallsInPhases[number % std::size(kCallsInPhases)];
  return static_cast<std::size_t>(std::ranges::find(calls(), std::string_view(name), &NamedCall::name) -
                                  calls().begin());
}

// Between hosts, of those whose data travel with the announcement. Others than first ranks raise one flag.
constexpr Phase kPhasesOfHosts[] = {Phase::kNothing, Phase::kAnnounced, Phase::kCollected, Phase::kPassedOn};

// What the seed stands for; the same on every rank.
struct Plan {
  explicit Plan(const CaseInput& input) {
    std::mt19937_64 random(input.seed);
    const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
    const bool any = input.name != "mismatch-shape" && input.name != "mismatch-dtype";
    call = below(any ? calls().size() : calls().size() - 2);  // a barrier has neither
    victim = static_cast<int>(below(static_cast<std::size_t>(input.world)));
    sizes = {static_cast<std::int64_t>(1 + below(random() % 2 ? 8 : 300'000)), 3};
    dtype = below(2) ? at::kFloat : at::kLong;
    delay = std::chrono::microseconds(below(20'000));
    if (!is_at_phase(input)) return;
    if (is_on_hosts(input)) {
      on_hosts(input);
      return;
    }
    phase = static_cast<Phase>(input.seed % kPhases);
    call = call_in_phases(input.seed / kPhases);
    sizes[0] = 6'000;  // no part of that is more than a chunk, among three ranks
    dtype = at::kFloat;
  }

  void on_hosts(const CaseInput& input) {
    phase = kPhasesOfHosts[input.seed % std::size(kPhasesOfHosts)];
    if (phase >= Phase::kCollected) victim -= victim % 2;
    call = 0;
    sizes[0] = 100;
  }

  std::size_t call = 0;
  int victim = 0;
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  std::chrono::microseconds delay{};
  Phase phase = Phase::kNothing;
};

std::int64_t now_ns() { return steady_clock::now().time_since_epoch().count(); }

std::uint64_t hash_of(const at::Tensor& tensor, std::uint64_t hash = 0xcbf29ce484222325) {
  const auto bytes = tensor.contiguous().view({-1}).view(at::kByte);
  for (const auto *p = bytes.const_data_ptr<std::uint8_t>(), *end = p + bytes.numel(); p != end; ++p) {
    hash = (hash ^ *p) * 0x100000001b3;
  }
  return hash;
}

// Sums of random numbers, whose bits all ranks must agree on.
std::uint64_t reduce_all(const Communicator& comm, const CaseInput& input) {
  std::uint64_t hash = 0;
  auto generator =
      at::detail::createCPUGenerator(input.seed * 1000 + static_cast<std::uint64_t>(comm.rank()));
  for (const std::int64_t rows : {1, 17, 5000, 300'000}) {
    const auto x = at::randn({rows, comm.size()}, generator);
    const auto mean = x.clone();
    comm.all_reduce(mean, ReduceOp::kAvg);
    const auto part = at::empty({rows});
    comm.reduce_scatter(part, x, ReduceOp::kAvg);
    const auto whole = at::empty_like(x);
    comm.all_gather(whole, part);
    if (!at::equal(mean.view({-1}), whole.view({-1}))) throw std::runtime_error("sums differ");
    hash ^= hash_of(mean);
  }
  return hash;
}

void misbehave(int signal, CaseReport& report) {
  report.misdeed_ns = now_ns();
  report.set_error(signal == SIGKILL ? "SIGKILL" : "SIGSTOP");
  report.is_done = true;
  ::kill(::getpid(), signal);
}

void misbehave_later(int signal, std::chrono::microseconds delay, CaseReport& report) {
  std::thread([=, &report] {
    std::this_thread::sleep_for(delay);
    misbehave(signal, report);
  }).detach();
}

class CaseRank {
 public:
  CaseRank(const CaseInput& input, const Communicator& comm, CaseReport& report)
      : input_(input), plan_(input), comm_(comm), report_(report), is_victim_(comm.rank() == plan_.victim) {
    x_ = at::ones(plan_.sizes, plan_.dtype);
  }

  void run() {
    for (int i = 0; i < (is_on_hosts(input_) ? 6 : 3); ++i) comm_.barrier();  // there segments are open then
    if (input_.name == "reduce") {
      report_.result_hash = reduce_all(comm_, input_);
    } else if (input_.name == "die" || input_.name == "stop") {
      if (is_victim_) misbehave_later(signal_of(input_), plan_.delay, report_);
      for (;;) call(x_);
    } else if (is_at_phase(input_)) {
      for (int i = 0; i < 3; ++i) call(x_);  // the first goes without segments
      if (is_victim_) at_phase(plan_.phase, part(), [this] { misbehave(signal_of(input_), report_); });
      for (;;) call(x_);
    } else if (input_.name == "absent") {
      if (!is_victim_) return call(x_);
      note_misdeed();
      std::this_thread::sleep_for(3 * kShortTimeout);
    } else {
      mismatch();
    }
  }

 private:
  void call(const at::Tensor& x) { calls()[plan_.call].call(comm_, x); }
  Part part() const {
    if (!is_on_hosts(input_)) return Part::kInSegments;
    return comm_.rank() % 2 == 0 ? Part::kFirstOfHost : Part::kOtherOfHost;
  }
  void note_misdeed() { report_.misdeed_ns = now_ns(); }

  void mismatch() {
    if (input_.name == "mismatch-group") return mismatch_group();
    if (!is_victim_) return call(x_);
    note_misdeed();
    if (input_.name == "mismatch-shape") return call(at::ones({plan_.sizes[0] + 1, 3}, plan_.dtype));
    if (input_.name == "mismatch-dtype")
      return call(x_.to(plan_.dtype == at::kLong ? at::kDouble : at::kHalf));
    const std::string others = calls()[plan_.call].name;
    const bool is_all_reduce = others == "all_reduce" || others == "async";
    is_all_reduce ? comm_.all_reduce(x_, ReduceOp::kMax) : comm_.all_reduce(x_);
  }

  void mismatch_group() {
    const int other = (plan_.victim + 1) % comm_.size();
    const auto pair = comm_.new_group({std::min(plan_.victim, other), std::max(plan_.victim, other)});
    if (!is_victim_) return call(x_);
    note_misdeed();
    pair->all_reduce(x_);
  }

  const CaseInput& input_;
  Plan plan_;
  Communicator comm_;
  CaseReport& report_;
  bool is_victim_;
  at::Tensor x_;
};

Communicator join(const CaseInput& input, int rank) {
  const bool waits_for_nobody = input.name == "absent" || input.name.starts_with("stop");
  CommOptions options{.main_port = input.port,
                      .rank = rank,
                      .world_size = input.world,
                      .timeout = waits_for_nobody ? milliseconds(kShortTimeout) : milliseconds(kJobTimeout)};
  if (rank == 0) options.listen_fd = input.listen_fd;
  if (input.backend == "single") return Communicator();
  const auto has = [&](const char* word) { return input.backend.find(word) != std::string::npos; };
  options.backend = input.backend.substr(0, input.backend.find('-'));
  if (has("-fast")) options.reduction = Reduction::kFast;
  if (has("-unchecked")) options.check_collectives = false;
  if (has("-apart")) env::set("LOCKSTEP_SHARED_MEMORY", "0");
  if (is_on_hosts(input)) env::set("LOCKSTEP_TEST_HOST", std::to_string(rank / 2));
  return init_communicator(options);
}

const char* class_of(const std::exception& error) {
  if (dynamic_cast<const CollectiveMismatch*>(&error)) return "CollectiveMismatch";
  if (dynamic_cast<const PeerLost*>(&error)) return "PeerLost";
  if (dynamic_cast<const Timeout*>(&error)) return "Timeout";
  if (dynamic_cast<const CommError*>(&error)) return "CommError";
  return "error";
}

void note_error(CaseReport& report, const std::exception& error) {
  report.set_error(class_of(error), error.what());
  const auto* of_comm = dynamic_cast<const CommError*>(&error);
  if (!of_comm) return;
  report.named_count =
      static_cast<int>(std::min<std::size_t>(of_comm->ranks().size(), std::size(report.named)));
  std::copy_n(of_comm->ranks().begin(), report.named_count, report.named);
}

}  // namespace

void CaseReport::set_error(std::string_view name, std::string_view what) {
  error[name.copy(error, sizeof error - 1)] = '\0';
  text[what.copy(text, sizeof text - 1)] = '\0';
}

std::vector<std::string> case_names() {
  return {"reduce", "mismatch-op", "mismatch-shape", "mismatch-dtype", "mismatch-group",
          "absent", "die",         "stop",           "die-at-phase",   "stop-at-phase"};
}

std::string collective_text(const CaseInput& input) {
  const Plan plan(input);
  return std::string(calls()[plan.call].name) + " of " + (plan.dtype == at::kLong ? "int64" : "float32") +
         " [" + std::to_string(plan.sizes[0]) + ", 3]";
}

int victim_of(const CaseInput& input) { return Plan(input).victim; }

void run_case(const CaseInput& input, int rank, std::span<CaseReport> reports) {
  at::set_num_threads(1);
  auto& report = reports[static_cast<std::size_t>(rank)];
  const auto& victim = reports[static_cast<std::size_t>(Plan(input).victim)];
  auto begin_ns = now_ns();
  const auto note_end = [&] {
    report.ms = static_cast<double>(now_ns() - std::max(begin_ns, victim.misdeed_ns.load())) / 1e6;
  };
  try {
    const auto comm = join(input, rank);
    CaseRank body(input, comm, report);
    begin_ns = now_ns();
    try {
      body.run();
    } catch (...) {
      note_end();  // before the communicator goes
      throw;
    }
    note_end();
    if (input.name == "reduce") comm.close();
  } catch (const std::exception& error) {
    note_error(report, error);
  }
  report.is_done = true;
}

}  // namespace lockstep::testing
