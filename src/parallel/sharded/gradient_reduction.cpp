#include "parallel/sharded/gradient_reduction.h"

#include <algorithm>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "parallel/autograd.h"
#include "parallel/backward_checks.h"

namespace lockstep::detail {
namespace {

// A second reduction may be under way while the first one ends, and before a row is filled; more would only
// hold memory.
constexpr std::size_t kMostUnderWay = 2;

[[noreturn]] void refuse_after_sending(const std::string& name) {
  throw ConfigError("parallel",
                    {.what = "a gradient of " + name + " came after its unit's had been averaged",
                     .expected = "a graph that leads to all uses of a parameter",
                     .got = "a function that runs a backward of its own, such as a reentrant checkpoint",
                     .hint = "use ls::checkpoint()"});
}

}  // namespace

GradientReduction::GradientReduction(std::vector<ShardedUnit>& units, MemoryPool& pool, Residency& residency,
                                     const MixedPrecision& mixed, const ShardMesh& mesh, ReduceOp op,
                                     const ZeroPlusPlus& options)
    : units_(units), mesh_(mesh), pool_(pool), residency_(residency) {
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    for (const auto& flat : units[unit].flats) {
      if (!flat->is_trained()) continue;
      flows_.push_back({.unit = unit, .gradient = FlatGradient(*flat, mixed, op, options)});
      const auto flow = flows_.size() - 1;
      for (std::size_t i = 0; i < flat->members().size(); ++i) watch(flow, i, flat->members()[i].tensor);
      flows_.back().missing.resize(flat->members().size());
    }
  }
  for (auto flow = flows_.size(); flow-- > 0;) order_.push_back(flow);
  // What belongs to no block is mostly used first, too, and what belongs to all is complete last.
  std::ranges::stable_partition(order_, [&](auto flow) { return !units_[flows_[flow].unit].is_spread; });
}

void GradientReduction::watch(std::size_t flow, std::size_t member, const at::Tensor& parameter) {
  places_.emplace(parameter.unsafeGetTensorImpl(), std::pair(flow, member));
  hooks_.emplace_back(
      register_last_grad_hook(parameter, [this, flow, member](const at::Tensor&) { arrive(flow, member); }));
}

void GradientReduction::begin(const at::Tensor& loss) {
  for (auto& flow : flows_) {
    flow.missing.assign(flow.missing.size(), false);
    flow.missing_count = 0;
    flow.is_complete = flow.is_sent = false;
    flow.is_left_out = flow.gradient.is_idle();
  }
  completed_.clear();
  sent_ = 0;
  is_backward_ = loss.defined();
  if (is_backward_) expect(loss);
  is_running_ = true;
}

void GradientReduction::expect(const at::Tensor& loss) {
  for_each_leaf(loss, [&](const at::Tensor& leaf) {
    const auto found = places_.find(leaf.unsafeGetTensorImpl());
    if (found == places_.end()) return true;
    auto& flow = flows_[found->second.first];
    flow.missing[found->second.second] = true;
    ++flow.missing_count;
    return true;
  });
}

void GradientReduction::arrive(std::size_t index, std::size_t member) {
  if (!is_running_) return;
  auto& flow = flows_[index];
  if (flow.is_sent) refuse_after_sending(flow.gradient.name_of(member));
  if (!flow.missing[member]) return;
  flow.missing[member] = false;
  take_early(flow, member);
  if (--flow.missing_count > 0) return;
  flow.is_complete = flow.was_shown = true;
  completed_.push_back(index);
  send_complete();
  const auto awaits = [&](const Flow& other) { return other.unit == flow.unit && other.missing_count > 0; };
  if (std::ranges::none_of(flows_, awaits)) residency_.end_backward_of(flow.unit);
}

// What is spread over the model is complete last: its row would be there all the time.
void GradientReduction::take_early(Flow& flow, std::size_t member) {
  if (units_[flow.unit].is_spread) return;
  if (!flow.gradient.has_row() && under_way_.size() >= kMostUnderWay) land_oldest();
  flow.gradient.take_early(pool_, member);
}

void GradientReduction::send_complete() {
  while (sent_ < order_.size() && may_go(flows_[order_[sent_]])) send(order_[sent_++]);
}

// A flow that no graph has shown yet waits for the end: some functions hide a graph of their own. One that is
// not used this time goes in its turn, without gradients. Turns are the same on all ranks, whatever their
// graphs show.
bool GradientReduction::may_go(const Flow& flow) const {
  if (flow.is_complete || flow.is_left_out) return true;
  if (!flow.was_shown || flow.missing_count > 0) return false;
  return std::any_of(order_.begin() + static_cast<std::ptrdiff_t>(sent_), order_.end(),
                     [this](auto later) { return flows_[later].is_complete; });
}

void GradientReduction::send(std::size_t index) {
  auto& flow = flows_[index];
  if (flow.is_left_out) return;
  go_on();
  if (under_way_.size() >= kMostUnderWay) land_oldest();
  flow.is_sent = true;
  flow.gradient.start(pool_, units_[flow.unit].number);
  under_way_.push_back(index);
  ++reductions_;
  reduced_bytes_ += flow.gradient.row_bytes();
}

// Errors of collectives know a unit by its number.
template <class Reduce>
void GradientReduction::name_units(const Reduce& reduce) const {
  try {
    reduce();
  } catch (const CollectiveMismatch& error) {
    residency_.refuse_mismatch(error);
  }
}

void GradientReduction::go_on() {
  if (under_way_.empty()) return;
  name_units([&] { flows_[under_way_.back()].gradient.go_on(); });
}

void GradientReduction::land_oldest() {
  name_units([&] { flows_[under_way_.front()].gradient.land(pool_); });
  under_way_.erase(under_way_.begin());
}

void GradientReduction::finish() {
  is_running_ = false;
  while (sent_ < order_.size()) send(order_[sent_++]);
  go_on();
  while (!under_way_.empty()) land_oldest();
  agree_on_order();
  for (auto& flow : flows_) flow.is_sent = false;
}

// Those that have landed, too: they may keep something for the next time.
void GradientReduction::abandon() noexcept {
  is_running_ = false;
  under_way_.clear();
  for (auto& flow : flows_) {
    if (std::exchange(flow.is_sent, false))
      flow.gradient.discard(pool_);
    else
      flow.gradient.drop_early(pool_);
  }
  drop_accumulated();
  for (auto& flow : flows_) flow.gradient.drop_averages();
}

void GradientReduction::forget_past() {
  for (auto& flow : flows_) flow.gradient.forget_past();
}

void GradientReduction::forget_flags() {
  for (auto& flow : flows_) flow.gradient.forget_flags();
}

void GradientReduction::take_memory() {
  for (auto& flow : flows_)
    if (!flow.gradient.is_idle()) flow.gradient.take_memory();
}

std::int64_t GradientReduction::bytes_to_take() const {
  std::int64_t bytes = 0;
  for (const auto& flow : flows_) bytes += flow.gradient.is_idle() ? 0 : flow.gradient.bytes_to_take();
  return bytes;
}

std::int64_t GradientReduction::average_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& flow : flows_) bytes += flow.gradient.average_bytes();
  return bytes;
}

void GradientReduction::drop_accumulated() {
  for (auto& flow : flows_) flow.gradient.drop();
}

// Gradients come in another order than parameters were registered in. The first backward shows which.
void GradientReduction::agree_on_order() {
  if (!is_backward_ || std::exchange(has_order_, true)) return;
  auto order = completed_;
  for (const auto flow : order_) {
    if (std::ranges::find(order, flow) == order.end()) order.push_back(flow);
  }
  std::vector<std::int64_t> numbers(order.begin(), order.end());
  if (numbers.empty()) return;
  const auto agreed = at::tensor(numbers);
  if (mesh_.replicate.size() > 1) mesh_.replicate.broadcast(agreed);
  if (mesh_.shards() > 1) mesh_.reduce.broadcast(agreed);
  for (std::size_t i = 0; i < order_.size(); ++i)
    order_[i] = static_cast<std::size_t>(agreed[static_cast<std::int64_t>(i)].item<std::int64_t>());
}

}  // namespace lockstep::detail
