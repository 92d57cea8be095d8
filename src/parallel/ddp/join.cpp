// How ranks agree without knowing each other's plans: before each of its collectives an engine gathers from
// every rank the code of what comes next; ranks without batches say kOut and do what the others said.
#include <lockstep/parallel/ddp/join.h>

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/comm/packed_collectives.h>

#include "parallel/ddp/ddp_engine.h"

namespace lockstep {

using detail::EngineEvent;
using detail::Participants;

namespace {

// Codes; engine i announces kFirstEngine + 2 i for a backward and one more for a step.
constexpr std::int64_t kOut = 0;
constexpr std::int64_t kNext = 1;
constexpr std::int64_t kFirstEngine = 2;

std::string meaning(std::int64_t code) {
  if (code == kNext) return "next()";
  const auto engine = " of engine " + std::to_string((code - kFirstEngine) / 2);
  return ((code - kFirstEngine) % 2 == 0 ? "a backward" : "after_step()") + engine;
}

}  // namespace

class Join::Impl final : public detail::EngineObserver {
 public:
  Impl(std::vector<DdpEngine*> engines, JoinOptions options);
  ~Impl() { leave(); }
  bool next(bool has_batch);
  Participants before(const DdpEngine& engine, EngineEvent event) override;

 private:
  void enter();
  void leave();
  void announce(std::int64_t code);
  void refuse_disagreement() const;
  int active() const {
    return static_cast<int>(comm_.size() - std::count(codes_.begin(), codes_.end(), kOut));
  }
  Participants participants() const;
  void refuse_early_end() const;
  void clear_gradients();
  void shadow(std::int64_t code);
  void finish(bool is_last);

  std::vector<DdpEngine*> engines_;
  JoinOptions options_;
  Communicator comm_;
  at::Tensor mine_, all_;
  std::span<const std::int64_t> codes_;  // of all_: what each rank said
  bool is_over_ = false;
};

Join::Impl::Impl(std::vector<DdpEngine*> engines, JoinOptions options)
    : engines_(std::move(engines)), options_(std::move(options)) {
  if (engines_.empty()) {
    throw ConfigError("parallel", {.what = "Join", .expected = "one engine at least", .got = "none"});
  }
  comm_ = engines_.front()->communicator();
  mine_ = at::empty({1}, at::kLong);
  all_ = at::empty({comm_.size()}, at::kLong);
  codes_ = {all_.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(comm_.size())};
  if (options_.enable) enter();
}

void Join::Impl::enter() {
  for (const auto* engine : engines_) {
    const auto& impl = *engine->impl_;
    const char* got = impl.observer                                ? "one that takes part in a Join already"
                      : impl.comm.group() != comm_.group()         ? "engines of different communicators"
                      : impl.options.skip_all_reduce_unused_params ? "skip_all_reduce_unused_params true"
                                                                   : nullptr;
    if (!got) continue;
    throw ConfigError("parallel",
                      {.what = "Join",
                       .expected = "engines of one communicator, each in one Join, that reduce all buckets",
                       .got = got});
  }
  for (auto* engine : engines_) {
    engine->impl_->observer = this;
    engine->impl_->was_joined = true;
  }
}

void Join::Impl::leave() {
  for (auto* engine : engines_) {
    if (engine->impl_->observer == this) engine->impl_->observer = nullptr;
  }
}

void Join::Impl::announce(std::int64_t code) {
  mine_.fill_(code);
  comm_.all_gather(all_, mine_);
  refuse_disagreement();
}

void Join::Impl::refuse_disagreement() const {
  const auto is_in = [](std::int64_t code) { return code != kOut; };
  const auto first = std::find_if(codes_.begin(), codes_.end(), is_in);
  const auto other =
      std::find_if(first, codes_.end(), [&](auto code) { return is_in(code) && code != *first; });
  if (other == codes_.end()) return;
  throw CollectiveMismatch(
      "parallel", {.what = "Join: ranks with batches do not do the same",
                   .expected = meaning(*first) + " as on rank " + std::to_string(first - codes_.begin()),
                   .got = meaning(*other) + " on rank " + std::to_string(other - codes_.begin())});
}

Participants Join::Impl::participants() const {
  const auto first = std::find_if(codes_.begin(), codes_.end(), [](auto code) { return code != kOut; });
  return {.divisor = options_.divide_by_initial_world_size ? comm_.size() : active(),
          .first_rank = static_cast<int>(first - codes_.begin()),
          .are_all = active() == comm_.size()};
}

void Join::Impl::refuse_early_end() const {
  if (active() == comm_.size()) return;
  std::string ranks;
  for (std::size_t rank = 0; rank < codes_.size(); ++rank) {
    if (codes_[rank] == kOut) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  throw DataError("parallel", {.what = "Join: ranks ran out of batches before the others",
                               .expected = "as many batches on every rank (throw_on_early_termination)",
                               .got = "none left on rank " + ranks,
                               .where = "rank " + std::to_string(comm_.rank())});
}

Participants Join::Impl::before(const DdpEngine& engine, EngineEvent event) {
  if (options_.throw_on_early_termination) return {.divisor = comm_.size()};  // next() saw that all are in
  const auto index = std::find(engines_.begin(), engines_.end(), &engine) - engines_.begin();
  announce(kFirstEngine + 2 * index + (event == EngineEvent::kStep ? 1 : 0));
  return participants();
}

bool Join::Impl::next(bool has_batch) {
  if (!options_.enable || is_over_) return has_batch && !is_over_;
  if (has_batch) {
    if (!options_.throw_on_early_termination) return true;
    announce(kNext);
    refuse_early_end();
    return true;
  }
  if (!options_.throw_on_early_termination) clear_gradients();  // of a window that it will not finish
  for (bool is_last = true;; is_last = false) {
    announce(kOut);
    if (active() == 0) return finish(is_last), false;
    if (options_.throw_on_early_termination) refuse_early_end();
    shadow(*std::max_element(codes_.begin(), codes_.end()));
  }
}

void Join::Impl::clear_gradients() {
  for (auto* engine : engines_) engine->impl_->clear_gradients();
}

// Averages stay in the gradients until the others step: their next pass may add to them.
void Join::Impl::shadow(std::int64_t code) {
  const auto now = participants();
  auto& engine = *engines_.at(static_cast<std::size_t>(code - kFirstEngine) / 2)->impl_;
  if ((code - kFirstEngine) % 2 == 0) return engine.shadow_backward(now);
  options_.on_shadowed_step ? options_.on_shadowed_step() : engine.clear_gradients();
  engine.broadcast_buffers(now.first_rank);
}

// Everything becomes that of the rank that was among the last to end; of several, the highest.
void Join::Impl::finish(bool is_last) {
  is_over_ = true;
  leave();
  if (!options_.throw_on_early_termination) clear_gradients();
  mine_.fill_(is_last ? comm_.rank() : -1);
  comm_.all_reduce(mine_, ReduceOp::kMax);
  const auto root = static_cast<int>(mine_.item<std::int64_t>());
  for (auto* engine : engines_) {
    broadcast_coalesced(comm_, engine->impl_->parameters, root);
    engine->impl_->broadcast_buffers(root);
  }
}

Join::Join(DdpEngine& engine, JoinOptions options)
    : Join(std::vector<DdpEngine*>{&engine}, std::move(options)) {}
Join::Join(std::vector<DdpEngine*> engines, JoinOptions options)
    : impl_(std::make_unique<Impl>(std::move(engines), std::move(options))) {}
Join::~Join() = default;

bool Join::next(bool has_batch) { return impl_->next(has_batch); }

}  // namespace lockstep
