// Runs: what tensors hold and has not been computed becomes one program, which is looked up by the structure
// of its graph, so that its text is written once.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "xla/capture.h"
#include "xla/device.h"
#include "xla/memories.h"
#include "xla/plan.h"
#include "xla/run_graph.h"

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
  std::unordered_map<std::string, std::unordered_set<std::string>> shapes_by_skeleton = {};
};

State& state() {
  static auto* const made = new State;
  return *made;
}

std::vector<Value> distinct_values(const std::vector<Memory*>& memories) {
  std::vector<Value> values;
  for (const auto* const memory : memories)
    if (std::ranges::find(values, memory->value) == values.end()) values.push_back(memory->value);
  return values;
}

// An array that no tensor holds any more gives its memory to a result of its shape.
std::vector<std::int64_t> overwritten_by(const Plan& plan) {
  const auto& results = plan.results();
  std::vector<bool> is_taken(results.size());
  std::vector<std::int64_t> chosen;
  for (const auto* const array : plan.arrays()) {
    chosen.push_back(-1);
    if (array->holders > 0 || array->is_shared || array->layout == Layout::kRows) continue;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (is_taken[i] || results[i].shape() != array->outputs.front()) continue;
      is_taken[i] = true;
      chosen.back() = static_cast<std::int64_t>(i);
      break;
    }
  }
  return chosen;
}

// Programs of training steps are large; what is made anew for other shapes beside them matters little.
constexpr std::size_t kLargeSkeleton = 4096;

void note_new_shapes(const Plan& plan) {
  auto skeleton = plan.skeleton();
  if (skeleton.size() < kLargeSkeleton) return;
  auto& shapes = state().shapes_by_skeleton[std::move(skeleton)];
  if (!shapes.insert(plan.structure({})).second || shapes.size() == 1) return;
  ++state().counts.recompiled_for_shapes;
  warn_once("xla.shapes",
            "XLA compiles a step once more, for a batch of another size: drop_last of the data loader leaves "
            "out a short last batch");
}

}  // namespace

std::shared_ptr<const Executable> program_of(const Plan& plan, const std::vector<std::int64_t>& overwritten) {
  auto& program = state().by_structure[plan.structure(overwritten)];
  if (program) return program;
  note_new_shapes(plan);
  return program = device_programs().get(plan.text(overwritten, state().client->partitions()));
}

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
  const auto memories = Memories::all().pending(device);
  if (memories.empty()) return;
  const Plan plan(distinct_values(memories));
  const auto program = program_of(plan, overwritten_by(plan));
  std::vector<std::shared_ptr<Buffer>> inputs;
  for (const auto* const array : plan.arrays()) inputs.push_back(array->buffer);
  const auto made = program->run(device, inputs);
  std::vector<Value> values;
  for (std::size_t i = 0; i < made.size(); ++i)
    values.push_back(array_value(made[i], plan.results()[i].shape()));
  for (auto* const memory : memories) {
    const auto place = std::ranges::find(plan.results(), memory->value) - plan.results().begin();
    Memories::all().set(*memory, values[static_cast<std::size_t>(place)]);
  }
  ++state().counts.runs;
}

void synchronize_device(c10::DeviceIndex device) {
  const std::lock_guard lock(device_mutex());
  refuse_in_capture("the host waits for the device");
  run_graph(device);
}

void begin_operator(c10::DeviceIndex device, bool is_optimizer_step) {
  if (current_capture() != nullptr) return;
  auto& has_stepped = state().has_stepped[device];
  if (has_stepped && !is_optimizer_step) run_graph(device);
  has_stepped = is_optimizer_step;
}

void note_operator(c10::DeviceIndex device) {
  ++state().counts.operators;
  if (++state().operators_since_run > kMostOperators && current_capture() == nullptr) run_graph(device);
}

}  // namespace lockstep::xla
