#include "comm/group/connected_group.h"

#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>

#include "comm/collectives/measured_collective.h"
#include "comm/errors.h"

namespace lockstep::detail {
namespace {

class QueuedPending final : public Pending {
 public:
  QueuedPending(std::shared_ptr<Lane> lane, std::shared_ptr<ProgressQueue::Task> task)
      : lane_(std::move(lane)), task_(std::move(task)) {}

  void wait() override { lane_->queue.wait(*task_); }
  bool is_completed() const override { return lane_->queue.is_done(*task_); }

 private:
  std::shared_ptr<Lane> lane_;
  std::shared_ptr<ProgressQueue::Task> task_;
};

// While this lives, the lane and the rank's status say what runs.
class Entered {
 public:
  Entered(Lane& lane, const char* name) : lane_(lane) {
    lane_.begin(name);
    enter_collective(name);
  }
  ~Entered() {
    lane_.end();
    leave_collective();
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Lane& lane_;
};

// Of the exception being handled: who was missed at a monitored barrier may come later.
bool is_harmless(const Collective& collective) {
  try {
    throw;
  } catch (const Timeout&) {
    return collective.kind == CollectiveKind::kMonitoredBarrier;
  } catch (...) {
    return false;
  }
}

}  // namespace

OrderedBackend::OrderedBackend(std::shared_ptr<Transport> transport, const GroupIdentity& identity,
                               const Store& store, const CommOptions& options,
                               std::unique_ptr<Agreement> agreement)
    : identity_(identity),
      transport_(std::move(transport)),
      executor_(*transport_, MonitoredBarrier(store, identity), options.reduction, options.peers),
      agreement_(std::move(agreement)),
      collectives_(std::make_shared<Lane>(identity)),
      messages_(
          identity,
          [this](const auto& lane) {
            if (agreement_) agreement_->job()->add(lane);
          },
          [this](const auto& lane) {
            if (agreement_) agreement_->job()->forget(*lane);
          }) {
  if (agreement_) agreement_->job()->add(collectives_);
}

OrderedBackend::~OrderedBackend() { close(); }

std::shared_ptr<Lane> OrderedBackend::lane_of(const Collective& collective) {
  return is_point_to_point(collective.kind) ? messages_.of(collective) : collectives_;
}

std::vector<std::shared_ptr<Lane>> OrderedBackend::lanes() const {
  auto lanes = messages_.all();
  lanes.insert(lanes.begin(), collectives_);
  return lanes;
}

void OrderedBackend::drain() {
  for (const auto& lane : lanes()) lane->queue.run([] {});
}

void OrderedBackend::close() {
  const auto reason = std::make_exception_ptr(CommError("comm", {.what = "the communicator is closed"}));
  messages_.close(reason);
  const auto all = lanes();
  bool is_busy = false;
  for (const auto& lane : all) {
    lane->is_closing = true;
    is_busy |= lane->queue.close(reason);
  }
  if (is_busy) transport_->abort();
  for (const auto& lane : all) lane->queue.join();
  for (const auto& lane : all) {
    if (agreement_) agreement_->job()->leave(*lane);
  }
}

void OrderedBackend::note_caller() {
  if (agreement_) agreement_->job()->note_caller();
}

std::string OrderedBackend::activity() const {
  for (const auto& lane : lanes()) {
    if (auto text = lane->activity_text(); !text.empty()) return text;
  }
  return "";
}

void OrderedBackend::run(const Collective& collective) {
  note_caller();
  const auto lane = lane_of(collective);
  lane->queue.run([&] { execute(*lane, collective); });
}

std::shared_ptr<Pending> OrderedBackend::start(const Collective& collective, OnDone on_done) {
  note_caller();
  const auto lane = lane_of(collective);
  auto body = [this, &at = *lane, collective] { execute(at, collective); };
  return std::make_shared<QueuedPending>(lane, lane->queue.push(std::move(body), std::move(on_done)));
}

std::shared_ptr<Pending> OrderedBackend::start_all(std::vector<Collective> collectives, OnDone on_done) {
  note_caller();
  auto body = [this, all = std::move(collectives)] {
    for (const auto& collective : all) execute(*collectives_, collective);
  };
  auto task = collectives_->queue.push(std::move(body), std::move(on_done));
  return std::make_shared<QueuedPending>(collectives_, std::move(task));
}

// The one place that every collective and message goes through, in the order of its lane. What comes after
// one that failed is not announced: the others, who may still be carrying that out, would take it for a
// mistake.
void OrderedBackend::execute(Lane& lane, const Collective& collective) {
  const bool is_collective = &lane == collectives_.get();
  if (is_collective && failure_) std::rethrow_exception(failure_);
  const char* const name = name_of(collective.kind);
  const Entered entered(lane, name);
  const MeasuredCollective measured(collective);
  try {
    const at::NoGradGuard no_grad;
    perform_or_translate(lane, collective);
  } catch (...) {
    if (agreement_ && is_collective && has_failed_) failure_ = std::current_exception();
    throw;
  }
}

void OrderedBackend::perform_or_translate(Lane& lane, const Collective& collective) try {
  perform(lane, collective);
} catch (...) {
  if (!is_harmless(collective)) has_failed_ = true;
  rethrow(lane, name_of(collective.kind));
}

void OrderedBackend::perform(Lane& lane, const Collective& collective) {
  if (!agreement_) return executor_.perform(collective);
  if (SmallCollective::is_one(collective)) return perform_small(lane, collective);
  if (executor_.is_near(collective)) return perform_near(lane, collective);
  agreement_->reach(lane, collective);
  const bool is_done = collective.kind == CollectiveKind::kMonitoredBarrier;  // to meet was all
  if (!is_done) executor_.perform(collective);
}

void OrderedBackend::perform_small(Lane& lane, const Collective& collective) {
  SmallCollective small(collective, identity_.rank, identity_.size(), scratch_);
  const auto own = small.own_bytes();
  agreement_->reach(lane, collective, own,
                    [&](int member, std::string_view bytes) { small.put(member, bytes); });
  transport_->count_sent(static_cast<std::int64_t>(own.size()) * (identity_.size() - 1));
  small.finish();
}

void OrderedBackend::perform_near(Lane& lane, const Collective& collective) {
  executor_.perform_near(
      collective, {.first = [&](std::string_view bytes,
                                const auto& take) { agreement_->reach(lane, collective, bytes, take); },
                   .next = [&] { agreement_->meet_again(lane); }});
}

void OrderedBackend::rethrow(const Lane& lane, const char* name) const {
  const FailedCollective failed{.name = name + lane.partner,
                                .sequence = lane.sequence,
                                .rank = identity_.global_rank(),
                                .size = identity_.size(),
                                .group = identity_.name};
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (...) {
    if (agreement_ && !lane.is_closing)
      agreement_->explain(lane, failed.name + " seq " + std::to_string(failed.sequence));
    rethrow_translated(failed);
  }
}

}  // namespace lockstep::detail
