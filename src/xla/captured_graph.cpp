// A captured step: operators are recorded once, and run as one program whenever it is replayed.
#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/GraphImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <lockstep/base/error.h>

#include "xla/capture.h"
#include "xla/device.h"
#include "xla/generator.h"
#include "xla/lowering.h"
#include "xla/memories.h"
#include "xla/run_graph.h"

namespace lockstep::xla {

Counts& counted();

namespace {

// Memory is read as an array of its own, so that each replay finds what it holds then; what is written is a
// result that it gets. The recording itself computes nothing.
class RecordedStep final : public Capture {
 public:
  explicit RecordedStep(c10::DeviceIndex device) : device_(device) {}

  Value input(Memory& memory, const c10::Storage& storage) override {
    if (before_.contains(memory.id)) return content_since(memory);
    TORCH_CHECK(memory.device == device_, "a captured step works on one XLA device");
    const auto found = inputs_.find(&memory);
    if (found != inputs_.end()) return found->second.value;
    const auto shape = memory.value ? memory.value.shape() : memory.shape;
    const auto layout = memory.value ? memory.value.node->layout : Layout::kCopies;
    return inputs_.emplace(&memory, Input{argument(shape, layout), storage}).first->second.value;
  }

  void note_write(const Memory& memory) override { before_.emplace(memory.id, memory.value); }

  Value random_state(const at::Generator& generator) override {
    TORCH_CHECK(draws_ == 0 || generator == generator_, "a captured step draws from one generator");
    if (draws_ == 0) {
      generator_ = generator;
      random_state_ = argument({{2}, at::kLong});
    }
    return made_by(kAdvance, {random_state_}, {{2}, at::kLong}, {{draws_++}});
  }

  // Puts back what memory held, and keeps what it is to hold after each replay.
  void end() {
    for (const auto& [id, before] : before_) {
      auto* const memory = Memories::all().find(id);
      if (memory == nullptr) continue;
      auto made = memory->value;
      Memories::all().set(*memory, before);
      const auto input = inputs_.find(memory);
      if (input != inputs_.end()) made = as_next_input(std::move(made), input->second.value);
      if (made && made != (input == inputs_.end() ? Value{} : input->second.value))
        outputs_.push_back({id, std::move(made)});
    }
    before_.clear();
  }

  void replay();

 private:
  struct Input {
    Value value;
    c10::Storage storage;
  };
  struct Output {
    std::int64_t id;
    Value value;
    std::size_t result = 0;
    bool is_only = true;  // nothing else becomes that result
  };
  // An argument of the program: a memory's value, an array that is always the same, or the random state.
  struct Argument {
    Memory* memory = nullptr;
    Shape shape = {};
    Layout layout = Layout::kCopies;
    std::shared_ptr<Buffer> buffer = {};
    bool may_be_overwritten = false;
  };

  // What was written since the recording began.
  static Value content_since(const Memory& memory) {
    return memory.value ? memory.value : made_by(kFill, {}, memory.shape);
  }

  static Value argument(Shape shape, Layout layout = Layout::kCopies) {
    auto node = std::make_shared<Node>();
    node->outputs.push_back(std::move(shape));
    node->layout = layout;
    return {std::move(node), 0};
  }

  // The next replay takes it in the shape in which this one did.
  static Value as_next_input(Value made, const Value& input) {
    if (!made || made.shape() == input.shape()) return made;
    return made_by(kReshape, {std::move(made)}, input.shape());
  }

  void compile();
  void prepare_memory();
  const std::shared_ptr<Buffer>& buffer_of(const Argument& argument, std::size_t place);
  void take_results();
  void lay_out(Memory& memory, const Argument& argument);

  c10::DeviceIndex device_;
  std::unordered_map<Memory*, Input> inputs_;
  std::map<std::int64_t, Value> before_;
  std::vector<Output> outputs_;
  at::Generator generator_;
  Value random_state_;
  std::int64_t draws_ = 0;
  std::shared_ptr<const Executable> program_;
  std::vector<Argument> arguments_;
  std::vector<Shape> shapes_;  // of the results
  // Of the replay under way, kept so that none allocates them.
  ArrayLists given_, made_;
  std::vector<std::int64_t> kept_;
  std::shared_ptr<Buffer> random_numbers_;
};

// An input that is written gives its memory to what it becomes.
void RecordedStep::compile() {
  std::vector<Value> results;
  for (auto& output : outputs_) {
    const auto found = std::ranges::find(results, output.value);
    output.result = static_cast<std::size_t>(found - results.begin());
    if (found == results.end()) results.push_back(output.value);
  }
  for (auto& output : outputs_)
    output.is_only = std::ranges::count(outputs_, output.result, &Output::result) == 1;
  for (const auto& result : results) shapes_.push_back(result.shape());
  const Plan plan(std::move(results));
  std::unordered_map<const Node*, Memory*> memory_of;
  for (const auto& [memory, input] : inputs_) memory_of.emplace(input.value.node.get(), memory);
  std::vector<bool> is_taken(shapes_.size());
  std::vector<std::int64_t> overwritten;
  for (const auto* const array : plan.arrays()) {
    const auto found = memory_of.find(array);
    auto* const memory = found == memory_of.end() ? nullptr : found->second;
    overwritten.push_back(-1);
    for (const auto& output : outputs_) {
      if (memory == nullptr || output.id != memory->id || is_taken[output.result]) continue;
      if (array->layout == Layout::kRows) continue;
      is_taken[output.result] = true;
      overwritten.back() = static_cast<std::int64_t>(output.result);
    }
    arguments_.push_back({.memory = memory,
                          .shape = array->outputs.front(),
                          .layout = array->layout,
                          .buffer = array->buffer,
                          .may_be_overwritten = overwritten.back() >= 0});
  }
  program_ = program_of(plan, overwritten);
  given_ = ArrayLists(device_client()->partitions(), arguments_.size());
  made_ = ArrayLists(device_client()->partitions(), shapes_.size());
  // Memory that is read only by what nobody holds any more is not kept.
  std::erase_if(inputs_, [&](const auto& input) {
    return std::ranges::none_of(arguments_, [&](const auto& used) { return used.memory == input.first; });
  });
  for (auto& output : outputs_) output.value = {};
  for (auto& input : inputs_) input.second.value = {};
}

// Somebody may have written it since the last replay, or never. What is yet to be computed of an array that
// is overwritten comes first.
void RecordedStep::prepare_memory() {
  bool is_pending = false;
  for (const auto& argument : arguments_) {
    if (argument.memory == nullptr) continue;
    auto& memory = *argument.memory;
    if (!memory.value) Memories::all().set(memory, made_by(kFill, {}, argument.shape));
    if (memory.value.shape() != argument.shape)
      Memories::all().set(memory, made_by(kReshape, {memory.value}, argument.shape));
    const auto& node = memory.value.node;
    const bool is_read_later = argument.may_be_overwritten && node.use_count() > node->holders;
    is_pending = is_pending || !node->buffer || is_read_later;
  }
  if (is_pending) run_graph(device_);
  for (const auto& argument : arguments_)
    if (argument.memory != nullptr) lay_out(*argument.memory, argument);
}

// A batch that partitions do not hold as the one that was recorded.
void RecordedStep::lay_out(Memory& memory, const Argument& argument) {
  const auto& node = *memory.value.node;
  if (node.layout == argument.layout) return;
  auto on_host = at::empty(argument.shape.sizes, at::TensorOptions().dtype(argument.shape.dtype));
  node.buffer->read(on_host.mutable_data_ptr(), on_host.nbytes());
  std::optional<DealtOut> dealt_out;
  if (argument.layout == Layout::kRows) dealt_out.emplace();
  Memories::all().set(memory, host_value(on_host, device_));
}

// What the argument holds now. Notes where it must not be overwritten.
const std::shared_ptr<Buffer>& RecordedStep::buffer_of(const Argument& argument, std::size_t place) {
  if (argument.memory == nullptr) {
    if (argument.buffer) return argument.buffer;
    return random_numbers_ = random_state_of(generator_, draws_, device_).node->buffer;
  }
  const auto& node = *argument.memory->value.node;
  const bool is_held_by_others = node.holders > 1 || node.is_shared;
  if (argument.may_be_overwritten && is_held_by_others) kept_.push_back(static_cast<std::int64_t>(place));
  return node.buffer;
}

// Whether nobody but the memory has its array, which can be another one then.
bool is_alone(const Memory& memory, const Shape& shape) {
  if (!memory.value || memory.value.node.use_count() > 1) return false;
  const auto& node = *memory.value.node;
  return node.is_array() && !node.is_shared && node.layout == Layout::kCopies &&
         node.buffer.use_count() == 1 && node.outputs.front() == shape;
}

// In steady state the memories keep their nodes.
void RecordedStep::take_results() {
  std::vector<Value> values;
  for (const auto& output : outputs_) {
    const auto& shape = shapes_[output.result];
    auto* const memory = Memories::all().find(output.id);
    if (memory != nullptr && output.is_only && is_alone(*memory, shape)) {
      memory->value.node->buffer->replace(made_.take(output.result));
      continue;
    }
    values.resize(shapes_.size());
    auto& value = values[output.result];
    if (!value)
      value = array_value(std::make_shared<Buffer>(device_client(), made_.take(output.result)), shape);
    if (memory != nullptr) Memories::all().set(*memory, value);
  }
}

void RecordedStep::replay() {
  if (outputs_.empty()) return;
  if (!program_) compile();
  prepare_memory();
  kept_.clear();
  for (std::size_t i = 0; i < arguments_.size(); ++i) given_.set(i, *buffer_of(arguments_[i], i));
  program_->run(device_, given_, made_, kept_);
  take_results();
  random_numbers_.reset();
  ++counted().replays;
}

// What LibTorch makes where somebody asks it for a graph of this device.
class XlaGraph final : public at::GraphImplInterface {
 public:
  explicit XlaGraph(const at::GraphImplArgs& /*args*/) {}
  ~XlaGraph() override {
    const std::lock_guard lock(device_mutex());
    if (is_under_way()) stop();
    step_.reset();
  }

  void capture_begin(at::MempoolId_t /*pool*/, at::GraphCaptureMode /*mode*/) override {
    const std::lock_guard lock(device_mutex());
    refuse_in_capture("another step is captured");
    const auto device = c10::impl::VirtualGuardImpl(c10::kXLA).getDevice().index();
    run_graph(device);
    step_ = std::make_unique<RecordedStep>(device);
    set_current_capture(step_.get());
  }
  void capture_end() override {
    const std::lock_guard lock(device_mutex());
    TORCH_CHECK(is_under_way(), "this step is not being captured");
    stop();
    ++counted().captures;
  }
  void instantiate() override {}
  void replay() override {
    const std::lock_guard lock(device_mutex());
    TORCH_CHECK(step_ && current_capture() == nullptr, "a step is replayed after it was captured");
    step_->replay();
  }
  void reset() override {
    const std::lock_guard lock(device_mutex());
    step_.reset();
  }
  at::MempoolId_t pool() const override { return {0, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string& /*path*/) override {}

 private:
  bool is_under_way() const { return step_ && current_capture() == step_.get(); }
  void stop() {
    set_current_capture(nullptr);
    step_->end();
  }

  std::unique_ptr<RecordedStep> step_;
};

}  // namespace
}  // namespace lockstep::xla

namespace at {

C10_REGISTER_CLASS(GraphImplRegistry, XLA, lockstep::xla::XlaGraph)

}  // namespace at
