// Runs: what tensors hold and has not been computed becomes one program, which is looked up by the structure
// of its graph, so that its text is written once.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include <lockstep/base/error.h>

#include "xla/device.h"
#include "xla/lowering.h"
#include "xla/memories.h"

namespace lockstep::xla {
namespace {

// A graph too large for one program: a loop that never looks at its results.
constexpr std::int64_t kMostOperators = 20000;

struct State {
  std::shared_ptr<const Client> client = {};
  std::unique_ptr<CompileCache> programs = {};
  Counts counts = {};
  std::int64_t operators_since_run = 0;
  std::map<c10::DeviceIndex, bool> has_stepped = {};
  std::unordered_map<std::string, std::shared_ptr<const Executable>> by_structure = {};
};

State& state() {
  static auto* const made = new State;
  return *made;
}

// The nodes that results need, each behind its inputs.
class Order {
 public:
  explicit Order(const std::vector<Value>& results) {
    for (const auto& result : results) visit(result.node.get());
  }
  const std::vector<Node*>& nodes() const { return nodes_; }
  std::size_t place_of(const Node* node) const { return places_.at(node); }

 private:
  // Without recursion, as graphs are deep.
  void visit(Node* root) {
    std::vector<std::pair<Node*, std::size_t>> path{{root, 0}};
    while (!path.empty()) {
      auto& [node, next] = path.back();
      if (places_.contains(node)) {
        path.pop_back();
      } else if (next < node->inputs.size()) {
        auto* const input = node->inputs[next++].node.get();
        if (!places_.contains(input)) path.emplace_back(input, 0);
      } else {
        places_.emplace(node, nodes_.size());
        nodes_.push_back(node);
        path.pop_back();
      }
    }
  }

  std::vector<Node*> nodes_;
  std::unordered_map<const Node*, std::size_t> places_;
};

// The bytes that tell graphs apart which are not the same program.
class Structure {
 public:
  void add(std::int64_t number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void add(double number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void add(const void* address) { add(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(address))); }
  void add(const Shape& shape) {
    add(static_cast<std::int64_t>(shape.dtype));
    add(static_cast<std::int64_t>(shape.sizes.size()));
    for (const auto size : shape.sizes) add(size);
  }
  void add(const c10::IValue& value) {
    add(static_cast<std::int64_t>(value.type()->kind()));
    if (value.isNone()) return;
    if (value.isInt()) return add(value.toInt());
    if (value.isBool()) return add(static_cast<std::int64_t>(value.toBool()));
    if (value.isDouble()) return add(value.toDouble());
    if (value.isScalar()) return add(value.toScalar().toDouble());
    bytes_ += c10::str(value);
    bytes_ += ';';
  }
  void add(const Node& node, const Order& order) {
    add(static_cast<const void*>(node.row));
    add(static_cast<const void*>(node.schema));
    for (const auto& output : node.outputs) add(output);
    for (const auto& input : node.inputs) {
      add(static_cast<std::int64_t>(order.place_of(input.node.get())));
      add(static_cast<std::int64_t>(input.output));
    }
    for (const auto& argument : node.arguments) {
      add(static_cast<std::int64_t>(argument.first));
      add(static_cast<std::int64_t>(argument.count));
      if (argument.first < 0) add(argument.value);
    }
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// A graph that is to run: arrays in, results out, and which array each result may overwrite.
class Run {
 public:
  explicit Run(std::vector<Memory*> memories) : memories_(std::move(memories)) {
    for (const auto* const memory : memories_)
      if (std::ranges::find(results_, memory->value) == results_.end()) results_.push_back(memory->value);
    order_.emplace(results_);
    for (auto* const node : order_->nodes())
      if (node->buffer) arrays_.push_back(node);
    choose_overwritten();
  }

  std::string structure() const {
    Structure structure;
    for (const auto* const node : order_->nodes()) structure.add(*node, *order_);
    for (const auto& result : results_) {
      structure.add(static_cast<std::int64_t>(order_->place_of(result.node.get())));
      structure.add(static_cast<std::int64_t>(result.output));
    }
    for (const auto result : overwritten_by_) structure.add(result);
    return structure.bytes();
  }

  std::string text() const;

  void run(const Executable& program, c10::DeviceIndex device) {
    std::vector<std::shared_ptr<Buffer>> inputs;
    for (const auto* const array : arrays_) inputs.push_back(array->buffer);
    const auto made = program.run(device, inputs);
    std::vector<Value> values;
    for (std::size_t i = 0; i < results_.size(); ++i)
      values.push_back(array_value(made[i], results_[i].shape()));
    for (auto* const memory : memories_) {
      const auto place = std::ranges::find(results_, memory->value) - results_.begin();
      Memories::all().set(*memory, values[static_cast<std::size_t>(place)]);
    }
  }

 private:
  // An array that no tensor holds any more gives its memory to a result of its shape.
  void choose_overwritten() {
    std::vector<bool> is_taken(results_.size());
    for (const auto* const array : arrays_) {
      overwritten_by_.push_back(-1);
      if (array->holders > 0 || array->is_shared) continue;
      for (std::size_t i = 0; i < results_.size(); ++i) {
        if (is_taken[i] || results_[i].shape() != array->outputs.front()) continue;
        is_taken[i] = true;
        overwritten_by_.back() = static_cast<std::int64_t>(i);
        break;
      }
    }
  }

  std::vector<Memory*> memories_;
  std::vector<Value> results_;
  std::optional<Order> order_;
  std::vector<Node*> arrays_;
  std::vector<std::int64_t> overwritten_by_;  ///< by array; -1: none
};

std::string parameters_text(const std::vector<Node*>& arrays,
                            const std::vector<std::int64_t>& overwritten_by) {
  std::string text;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    text += (i > 0 ? ", %p" : "%p") + std::to_string(i) + ": " + type_text(arrays[i]->outputs.front());
    if (overwritten_by[i] >= 0)
      text += " {tf.aliasing_output = " + std::to_string(overwritten_by[i]) + " : i32}";
  }
  return text;
}

std::string Run::text() const {
  Emitter emit;
  std::vector<std::vector<Named>> made;
  std::size_t parameters = 0;
  for (const auto* const node : order_->nodes()) {
    if (node->buffer) {
      made.push_back({{"%p" + std::to_string(parameters++), node->outputs.front()}});
      continue;
    }
    std::vector<Named> inputs;
    for (const auto& input : node->inputs)
      inputs.push_back(made[order_->place_of(input.node.get())][input.output]);
    Call call(emit, *node, inputs);
    made.push_back(node->row->lower(call));
  }
  std::string types, names;
  for (const auto& result : results_) {
    const auto& named = made[order_->place_of(result.node.get())][result.output];
    types += (types.empty() ? "" : ", ") + type_text(named.shape);
    names += (names.empty() ? "" : ", ") + named.name;
  }
  return "func.func public @main(" + parameters_text(arrays_, overwritten_by_) + ") -> (" + types + ") {\n" +
         emit.text() + "  return " + names + " : " + types + "\n}\n";
}

}  // namespace

void set_client(std::shared_ptr<const Client> client, std::optional<std::filesystem::path> cache) {
  state().programs = std::make_unique<CompileCache>(client, std::move(cache));
  state().client = std::move(client);
}

bool is_installed() { return state().client != nullptr; }
const std::shared_ptr<const Client>& device_client() { return state().client; }
CompileCache& device_programs() { return *state().programs; }

Counts& counted() { return state().counts; }

Counts counts() {
  const std::lock_guard lock(device_mutex());
  return state().counts;
}

void run_graph(c10::DeviceIndex device) {
  state().operators_since_run = 0;
  auto memories = Memories::all().pending(device);
  if (memories.empty()) return;
  Run run(std::move(memories));
  auto& program = state().by_structure[run.structure()];
  if (!program) program = device_programs().get(run.text());
  run.run(*program, device);
  ++state().counts.runs;
}

void synchronize_device(c10::DeviceIndex device) {
  const std::lock_guard lock(device_mutex());
  run_graph(device);
}

void begin_operator(c10::DeviceIndex device, bool is_optimizer_step) {
  auto& has_stepped = state().has_stepped[device];
  if (has_stepped && !is_optimizer_step) run_graph(device);
  has_stepped = is_optimizer_step;
}

void note_operator(c10::DeviceIndex device) {
  ++state().counts.operators;
  if (++state().operators_since_run > kMostOperators) run_graph(device);
}

}  // namespace lockstep::xla
