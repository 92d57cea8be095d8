#include "xla/plan.h"

#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

// The bytes that tell graphs apart which are not the same program.
class Structure {
 public:
  explicit Structure(bool has_sizes = true) : has_sizes_(has_sizes) {}

  void add(std::int64_t number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void add(double number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void add(const void* address) { add(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(address))); }
  void add(const Shape& shape) {
    add(static_cast<std::int64_t>(shape.dtype));
    add(static_cast<std::int64_t>(shape.sizes.size()));
    if (!has_sizes_) return;
    for (const auto size : shape.sizes) add(size);
  }
  void add(const c10::IValue& value) {
    add(static_cast<std::int64_t>(value.type()->kind()));
    if (value.isNone() || !has_sizes_) return;
    if (value.isInt()) return add(value.toInt());
    if (value.isBool()) return add(static_cast<std::int64_t>(value.toBool()));
    if (value.isDouble()) return add(value.toDouble());
    if (value.isScalar()) return add(value.toScalar().toDouble());
    bytes_ += c10::str(value);
    bytes_ += ';';
  }
  const std::string& bytes() const { return bytes_; }

 private:
  bool has_sizes_;
  std::string bytes_;
};

// How XLA is told where partitions hold an array: nothing where there is one.
std::string sharding_text(Layout layout, std::size_t dimensions, int partitions) {
  if (partitions == 1) return "";
  if (layout == Layout::kCopies) return "mhlo.sharding = \"{replicated}\"";
  const auto count = std::to_string(partitions);
  std::string sizes = count;
  for (std::size_t i = 1; i < dimensions; ++i) sizes += ",1";
  return "mhlo.sharding = \"{devices=[" + sizes + "]<=[" + count + "]}\"";
}

std::string in_braces(const std::string& first, const std::string& second) {
  if (first.empty() && second.empty()) return "";
  return " {" + first + (first.empty() || second.empty() ? "" : ", ") + second + "}";
}

std::string parameters_text(const std::vector<Node*>& arrays, const std::vector<std::int64_t>& overwritten_by,
                            int partitions) {
  std::string text;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto& shape = arrays[i]->outputs.front();
    const auto aliasing =
        overwritten_by[i] < 0 ? "" : "tf.aliasing_output = " + std::to_string(overwritten_by[i]) + " : i32";
    text += (i > 0 ? ", %p" : "%p") + std::to_string(i) + ": " + type_text(shape) +
            in_braces(aliasing, sharding_text(arrays[i]->layout, shape.sizes.size(), partitions));
  }
  return text;
}

template <class Place>
void add_node(Structure& structure, const Node& node, const Place& place_of) {
  structure.add(static_cast<std::int64_t>(node.layout));
  structure.add(static_cast<const void*>(node.row));
  structure.add(static_cast<const void*>(node.schema));
  for (const auto& output : node.outputs) structure.add(output);
  for (const auto& input : node.inputs) {
    structure.add(static_cast<std::int64_t>(place_of(input)));
    structure.add(static_cast<std::int64_t>(input.output));
  }
  for (const auto& argument : node.arguments) {
    structure.add(static_cast<std::int64_t>(argument.first));
    structure.add(static_cast<std::int64_t>(argument.count));
    if (argument.first < 0 || !argument.value.isNone()) structure.add(argument.value);
  }
}

}  // namespace

Plan::Plan(std::vector<Value> results) : results_(std::move(results)) {
  for (const auto& result : results_) visit(result.node.get());
  for (auto* const node : nodes_)
    if (node->is_array()) arrays_.push_back(node);
}

// Without recursion, as graphs are deep.
void Plan::visit(Node* root) {
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

std::string Plan::structure(const std::vector<std::int64_t>& overwritten_by) const {
  Structure structure;
  for (const auto* const node : nodes_)
    add_node(structure, *node, [&](const Value& value) { return place_of(value); });
  for (const auto& result : results_) {
    structure.add(static_cast<std::int64_t>(place_of(result)));
    structure.add(static_cast<std::int64_t>(result.output));
  }
  for (const auto result : overwritten_by) structure.add(result);
  return structure.bytes();
}

std::string Plan::skeleton() const {
  Structure structure(/*has_sizes=*/false);
  for (const auto* const node : nodes_)
    add_node(structure, *node, [&](const Value& value) { return place_of(value); });
  return structure.bytes();
}

// For each node that writes to a part of memory whether only the next such write sees what it makes: those
// are lowered together.
std::vector<bool> Plan::written_again() const {
  std::vector<int> uses(nodes_.size());
  std::vector<bool> is_written(nodes_.size());
  for (const auto* const node : nodes_)
    for (std::size_t i = 0; i < node->inputs.size(); ++i) {
      const auto place = place_of(node->inputs[i]);
      ++uses[place];
      if (i == 0 && node->row == &kWriteStrided && nodes_[place]->row == &kWriteStrided)
        is_written[place] = true;
    }
  for (const auto& result : results_) ++uses[place_of(result)];
  for (std::size_t i = 0; i < nodes_.size(); ++i) is_written[i] = is_written[i] && uses[i] == 1;
  return is_written;
}

std::string Plan::text(const std::vector<std::int64_t>& overwritten_by, int partitions) const {
  Emitter emit;
  std::vector<std::vector<Named>> made;
  std::vector<std::vector<FlatWrite>> waiting(nodes_.size());  // to what is made
  const auto is_written_again = written_again();
  std::size_t parameters = 0;
  for (std::size_t place = 0; place < nodes_.size(); ++place) {
    const auto* const node = nodes_[place];
    if (node->is_array()) {
      made.push_back({{"%p" + std::to_string(parameters++), node->outputs.front()}});
      continue;
    }
    std::vector<Named> inputs;
    for (const auto& input : node->inputs) inputs.push_back(made[place_of(input)][input.output]);
    Call call(emit, *node, inputs);
    if (node->row != &kWriteStrided) {
      made.push_back(node->row->lower(call));
      continue;
    }
    auto writes = std::move(waiting[place_of(node->inputs[0])]);
    if (const auto write = flat_write(call)) {
      writes.push_back(*write);
      made.push_back({inputs[0]});
    } else {
      inputs[0] = with_writes(emit, inputs[0], writes);
      writes.clear();
      made.push_back(node->row->lower(call));
    }
    if (is_written_again[place])
      waiting[place] = std::move(writes);
    else
      made[place].front() = with_writes(emit, made[place].front(), writes);
  }
  std::string results, types, names;
  for (const auto& result : results_) {
    const auto& named = made[place_of(result)][result.output];
    const auto* const comma = types.empty() ? "" : ", ";
    types += comma + type_text(named.shape);
    results += comma + type_text(named.shape) + in_braces(sharding_text(Layout::kCopies, 0, partitions), "");
    names += comma + named.name;
  }
  return "func.func public @main(" + parameters_text(arrays_, overwritten_by, partitions) + ") -> (" +
         results + ") {\n" + emit.text() + "  return " + names + " : " + types + "\n}\n";
}

}  // namespace lockstep::xla
