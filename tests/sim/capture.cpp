#include "sim/capture.h"

#include <optional>

#include <ATen/core/GraphImplInterface.h>
#include <c10/util/Exception.h>

#include "sim/runtime.h"

namespace lockstep::sim {

Capture::Capture(int id, int stream) : id_(id), first_stream_(stream) { clocks_[stream] = {}; }

void Capture::add(int stream, Kernel kernel) {
  ++clocks_.at(stream)[stream];
  ++kernels_;
  steps_.push_back({.kind = StepKind::kKernel, .stream = stream, .kernel = std::move(kernel)});
}

void Capture::add_record(const EventPtr& event, int stream) {
  event->capture = id_;
  event->captured_record = record_clocks_.size();
  steps_.push_back({.kind = StepKind::kRecord, .stream = stream, .record = record_clocks_.size()});
  record_clocks_.push_back(clocks_.at(stream));
}

void Capture::add_wait(const EventPtr& event, int stream) {
  if (event->capture != id_ && event->issued > 0) {
    refuse(stream_name(stream) + " waits for an event that was recorded outside of the graph");
    TORCH_CHECK(false, "sim: operation not permitted when stream is capturing: ", refusal_);
  }
  if (event->capture != id_) return;
  join(clocks_[stream], record_clocks_[event->captured_record]);
  steps_.push_back({.kind = StepKind::kWait, .stream = stream, .record = event->captured_record});
}

// A stream takes part once it waits.
bool Capture::orders_anything(const Event& event, int stream) const {
  const auto known = clocks_.find(stream);
  if (known == clocks_.end()) return true;
  auto together = known->second;
  join(together, record_clocks_[event.captured_record]);
  return together != known->second;
}

void Capture::check_end() const {
  TORCH_CHECK(refusal_.empty(), "sim: the graph was not captured: ", refusal_);
  for (const auto& [stream, clock] : clocks_)
    TORCH_CHECK(clocks_.at(first_stream_)[stream] >= clock[stream],
                "sim: the graph was not captured: ", stream_name(first_stream_), " does not wait for ",
                stream_name(stream), ", which takes part");
}

// What was captured on side streams must not be ordered after what these do otherwise; but a communicator's
// collectives are in one order.
int Capture::lane(int stream, int first) const {
  if (stream == first_stream_) return first;
  const int number = stream % kStreamsPerDevice;
  return number == kCollectiveStream ? stream : stream - number + kFirstLane + number % kFirstLane;
}

void Capture::issue_all(int first) const {
  const auto start = std::make_shared<Event>();
  issue_record(start, first);
  for (const auto& [stream, _] : clocks_)
    if (stream != first_stream_) issue_wait(start, lane(stream, first));
  std::vector<EventPtr> events(record_clocks_.size());
  for (const auto& step : steps_) {
    const int to = lane(step.stream, first);
    switch (step.kind) {
      case StepKind::kKernel:
        issue(to, step.kernel, id_);
        break;
      case StepKind::kRecord:
        issue_record(events[step.record] = std::make_shared<Event>(), to);
        break;
      case StepKind::kWait:
        issue_wait(events[step.record], to);
        break;
    }
  }
}

bool is_captured(int stream) { return runtime().capture && runtime().capture->has(stream); }

bool is_being_captured(int stream, int graph) {
  return is_captured(stream) && runtime().capture->id() == graph;
}

int graph_of(int stream) { return is_captured(stream) ? runtime().capture->id() : 0; }

Graph::Graph() = default;

Graph::~Graph() {
  if (!capture_) return;
  auto& all = runtime();
  for (int device = 0; device < all.options.devices; ++device) wait_for_device(device);
  const std::lock_guard lock(all.mutex);
  if (all.capture == capture_) all.capture = nullptr;
  release_graph_memory(capture_->id());
}

void Graph::begin() {
  auto& all = runtime();
  const int stream = current_stream(current_device());
  const std::lock_guard lock(all.mutex);
  TORCH_CHECK(!all.capture, "sim: another graph is being captured");
  TORCH_CHECK(!capture_, "sim: this graph was captured already");
  all.capture = capture_ = std::make_shared<Capture>(++all.captures, stream);
}

void Graph::end() {
  auto& all = runtime();
  const std::lock_guard lock(all.mutex);
  TORCH_CHECK(capture_ && all.capture == capture_, "sim: this graph is not being captured");
  all.capture = nullptr;
  capture_->check_end();
}

void Graph::replay() {
  auto& all = runtime();
  throw_failure();
  const int stream = current_stream(current_device());
  const std::lock_guard lock(all.mutex);
  TORCH_CHECK(capture_ && !all.capture,
              "sim: a graph is replayed after it was captured, and not within a capture");
  capture_->issue_all(stream);
}

std::size_t Graph::kernels() const { return capture_ ? capture_->kernels() : 0; }

namespace {

// What LibTorch makes where somebody asks it for a graph of this device.
class TorchGraph final : public at::GraphImplInterface {
 public:
  explicit TorchGraph(const at::GraphImplArgs& /*args*/) {}
  void capture_begin(at::MempoolId_t /*pool*/, at::GraphCaptureMode /*mode*/) override { graph_->begin(); }
  void capture_end() override { graph_->end(); }
  void instantiate() override {}
  void replay() override { graph_->replay(); }
  void reset() override { graph_.emplace(); }
  at::MempoolId_t pool() const override { return {0, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string& /*path*/) override {}

 private:
  std::optional<Graph> graph_{std::in_place};
};

}  // namespace
}  // namespace lockstep::sim

namespace at {

// The name under which LibTorch looks for it is that of the device, in capital letters.
C10_REGISTER_CLASS(GraphImplRegistry, SIM, lockstep::sim::TorchGraph)

}  // namespace at
