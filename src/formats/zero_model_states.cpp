// The model states in a checkpoint of DeepSpeed: weights as whole tensors, and the state of the optimizer.
#include "formats/zero_checkpoint.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "formats/file_text.h"

namespace lockstep::detail {
namespace {

using safetensors::Dtype;

/// The dict under `key`, or nullptr where it is None or missing.
const pickle::Dict* dict_or_none(const OpenedTorchFile& file, const char* key) {
  const auto* value = file.root().find(key);
  if (value == nullptr || value->as<pickle::None>() != nullptr) return nullptr;
  return &held_in<pickle::Dict>(file, file.root(), key);
}

/// The values of a dict by their keys; of two under one key the last.
using ByName = std::unordered_map<std::string_view, const pickle::Value*>;

ByName by_name(const pickle::Dict& dict) {
  ByName values;
  for (const auto& [key, value] : dict.entries)
    if (const auto* name = key.as<std::string>()) values.insert_or_assign(*name, &value);
  return values;
}

class Collector {
 public:
  explicit Collector(const ZeroCheckpoint& checkpoint)
      : checkpoint_(checkpoint), model_(checkpoint.model()) {}

  std::vector<StoredTensorView> all(bool exclude_frozen) {
    if (checkpoint_.stage() == 0) {
      add_model();
    } else {
      add_buffers();
      if (!exclude_frozen) add_frozen();
      add_trained();
      add_tied();
    }
    return std::move(tensors_);
  }

 private:
  const pickle::Dict& module() const { return held_in<pickle::Dict>(model_, model_.root(), "module"); }

  /// The entry of the model of that name, as a tensor.
  StoredTensorView view(const std::string& name, const pickle::Value& value,
                        const OpenedTorchFile& file) const {
    const auto* tensor = value.as<pickle::Tensor>();
    if (tensor == nullptr) refuse_key(file, in_quotes(name), "a tensor", std::string(value.kind()));
    return {.name = name, .shape = tensor->shape, .elements = elements_of(file, *tensor)};
  }

  void add(StoredTensorView tensor) {
    if (!numbers_.try_emplace(tensor.name, tensors_.size()).second)
      refuse_key(model_, "the tensor " + in_quotes(tensor.name), "one of that name", "two");
    tensors_.push_back(std::move(tensor));
  }

  const std::string& text(const pickle::Value& value, const char* key) const {
    const auto* held = value.as<std::string>();
    if (held == nullptr) refuse_key(model_, key, "names", std::string(value.kind()));
    return *held;
  }

  void add_buffers() {
    std::unordered_set<std::string> buffers;
    for (const auto& name : held_in<pickle::List>(model_, model_.root(), "buffer_names"))
      buffers.insert(text(name, "buffer_names"));
    for (const auto& [key, value] : module().entries) {
      const auto& name = text(key, "module");
      if (buffers.contains(name)) add(view(name, value, model_));
    }
  }

  void add_frozen() {
    const auto* shapes = dict_or_none(model_, "frozen_param_shapes");
    if (shapes == nullptr) return checkpoint_.stage() == 1 ? add_rest_of_model() : void();
    for (const auto& [key, shape] : shapes->entries) {
      const auto& name = text(key, "frozen_param_shapes");
      add(checkpoint_.stage() < 3 ? whole_fragment(name) : joined_fragments(name, shape));
    }
  }

  const pickle::Value& fragment(const OpenedTorchFile& file, const std::string& name) {
    constexpr auto kKey = "frozen_param_fragments";
    const auto [fragments, is_new] = fragments_.try_emplace(&file);
    if (is_new) fragments->second = by_name(held_in<pickle::Dict>(file, file.root(), kKey));
    const auto found = fragments->second.find(name);
    if (found == fragments->second.end())
      refuse_key(file, kKey, "the parameter " + in_quotes(name), "none of that name");
    return *found->second;
  }

  StoredTensorView whole_fragment(const std::string& name) {
    return view(name, fragment(model_, name), model_);
  }

  /// Stage 3: equal pieces of all ranks, the last ones padded.
  StoredTensorView joined_fragments(const std::string& name, const pickle::Value& shape) {
    StoredTensorView tensor{.name = name, .shape = zero_shape(model_, name, shape), .elements = {}};
    auto missing = zero_elements(model_, name, tensor.shape);
    const auto ranks = checkpoint_.files().models.size();
    const auto expected = missing / ranks + (missing % ranks == 0 ? 0 : 1);
    for (const auto& file : checkpoint_.files().models) {
      const auto piece = view(name, fragment(file, name), file).elements;
      if (piece.strided) refuse_key(file, in_quotes(name), "a piece without gaps", "one with gaps");
      const auto bytes = dtype_bytes(piece.dtype);
      const auto there = piece.runs.front().size() / bytes;
      if (there != expected)
        refuse_key(file, in_quotes(name), std::to_string(expected) + " elements, those of a rank",
                   std::to_string(there));
      const auto taken = std::min(missing, expected);
      if (&file != &model_ && piece.dtype != tensor.elements.dtype)
        refuse_key(file, in_quotes(name), "the element type of rank 0's",
                   std::string(dtype_name(piece.dtype)));
      tensor.elements.dtype = piece.dtype;
      tensor.elements.runs.push_back(piece.runs.front().first(taken * bytes));
      missing -= taken;
    }
    return tensor;
  }

  /// Adds the frozen parameters of stage 1, which are those that the optimizer does not have.
  void add_rest_of_model() {
    std::unordered_set<std::string> others;
    for (const auto& parameter : checkpoint_.parameters()) others.insert(parameter.name);
    if (const auto* tied = dict_or_none(model_, "shared_params"))
      for (const auto& [name, of] : tied->entries) others.insert(text(name, "shared_params"));
    for (const auto& [key, value] : module().entries) {
      const auto& name = text(key, "module");
      if (!others.contains(name) && !numbers_.contains(name)) add(view(name, value, model_));
    }
  }

  void add_trained() {
    const auto& parameters = checkpoint_.parameters();
    for (std::size_t number = 0; number < parameters.size(); ++number)
      add({.name = parameters[number].name,
           .shape = parameters[number].shape,
           .elements = checkpoint_.weights_of(number)});
  }

  void add_tied() {
    const auto* tied = dict_or_none(model_, "shared_params");
    if (tied == nullptr) return;
    for (const auto& [key, value] : tied->entries) {
      const auto& of = text(value, "shared_params");
      const auto found = numbers_.find(of);
      if (found == numbers_.end()) continue;
      auto copy = tensors_[found->second];
      copy.name = text(key, "shared_params");
      copy.tied_to = of;
      // DeepSpeed takes all tensors without elements for one.
      if (numbers_.contains(copy.name) && zero_elements(model_, copy.name, copy.shape) == 0) continue;
      add(std::move(copy));
    }
  }

  /// Stage 0: as they were trained. Tensors at one place of one storage are tied.
  void add_model() {
    std::unordered_map<const void*, std::string> first;
    bool is_of_16_bits = false;
    for (const auto& [key, value] : module().entries) {
      auto tensor = view(text(key, "module"), value, model_);
      is_of_16_bits |= tensor.elements.dtype == Dtype::kBF16 || tensor.elements.dtype == Dtype::kF16;
      if (const auto& runs = tensor.elements.runs; !runs.empty() && !runs.front().empty()) {
        const auto [place, is_new] = first.try_emplace(runs.front().data(), tensor.name);
        if (!is_new && has_shape(place->second, tensor.shape)) tensor.tied_to = place->second;
      }
      add(std::move(tensor));
    }
    if (is_of_16_bits)
      log_warning("'" + model_.where() +
                  "' is of stage 0, which keeps weights as the model has them: in 16 bits");
  }

  bool has_shape(const std::string& name, const std::vector<std::int64_t>& shape) const {
    const auto found = numbers_.find(name);
    return found != numbers_.end() && tensors_[found->second].shape == shape;
  }

  const ZeroCheckpoint& checkpoint_;
  const OpenedTorchFile& model_;
  std::vector<StoredTensorView> tensors_;
  std::unordered_map<std::string, std::size_t> numbers_;  // in tensors_, by name
  std::unordered_map<const OpenedTorchFile*, ByName> fragments_;
};

}  // namespace

std::vector<StoredTensorView> zero_weights(const ZeroCheckpoint& checkpoint, bool exclude_frozen) {
  if (exclude_frozen && checkpoint.stage() == 0)
    throw ConfigError("checkpoint", {.what = "exclude_frozen_parameters",
                                     .expected = "a checkpoint that says which parameters are frozen",
                                     .got = checkpoint.files().folder.string() + ", of stage 0"});
  return Collector(checkpoint).all(exclude_frozen);
}

namespace {

/// Whether a group's settings are those of that row.
bool has_row(const pickle::Dict& group, std::int64_t row) {
  const auto* rows = group.find("params");
  const auto* numbers = rows == nullptr ? nullptr : rows->as<pickle::List>();
  return numbers != nullptr && std::ranges::any_of(*numbers, [&](const auto& value) {
           const auto* number = value.template as<std::int64_t>();
           return number != nullptr && *number == row;
         });
}

}  // namespace

ZeroOptimizer::ZeroOptimizer(const ZeroCheckpoint& checkpoint) : checkpoint_(checkpoint) {
  if (checkpoint.stage() == 0)
    throw CheckpointError("checkpoint",
                          {.what = checkpoint.files().folder.string() + " is of stage 0",
                           .expected = "a checkpoint of stage 1, 2 or 3, which says whose state is whose",
                           .hint = "load the model alone"});
  for (std::size_t rank = 0; rank < checkpoint.files().optimizers.size(); ++rank)
    rows_.push_back(rows_in(held_in<pickle::Dict>(file(rank), inner(rank), "state")));
  for (std::size_t number = 0; number < checkpoint.parameters().size(); ++number)
    numbers_.try_emplace(checkpoint.parameters()[number].name, number);
}

const pickle::Dict& ZeroOptimizer::inner(std::size_t rank) const {
  const auto* key = inner_key(checkpoint_.stage());
  const auto* value = zero_state(file(rank)).find(key);
  if (value != nullptr && value->as<pickle::List>() != nullptr)
    refuse_key(file(rank), key, "a dict, as without zero_optimization.elastic_checkpoint",
               "a list, as elastic_checkpoint makes it: save once more without it, or load the model alone");
  return held_in<pickle::Dict>(file(rank), zero_state(file(rank)), key);
}

const pickle::Dict& ZeroOptimizer::row(std::size_t rank, std::size_t number) const {
  const auto found = rows_[rank].find(static_cast<std::int64_t>(number));
  if (found != rows_[rank].end()) return *found->second;
  refuse_key(file(rank), "the state of row " + std::to_string(number), "a dict", "none");
}

std::optional<std::size_t> ZeroOptimizer::find(const std::string& name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

std::size_t ZeroOptimizer::number_of(const std::string& name) const {
  if (const auto found = find(name)) return *found;
  throw CheckpointError("checkpoint",
                        {.what = "the optimizer's state in " + checkpoint_.files().folder.string(),
                         .expected = "that of " + in_quotes(name),
                         .got = "none of that parameter"});
}

StoredElements ZeroOptimizer::state_of(std::size_t number, const std::string& kind) const {
  StoredElements found;
  for (const auto& run : checkpoint_.runs_of(number)) {
    const auto* value = row(run.rank, run.row).find(kind);
    const auto* tensor = value == nullptr ? nullptr : value->as<pickle::Tensor>();
    if (tensor == nullptr)
      refuse_key(file(run.rank), "the state of row " + std::to_string(run.row), "a tensor " + in_quotes(kind),
                 "none of that name: is the optimizer another one?");
    auto elements = elements_of(file(run.rank), *tensor);
    const auto bytes = dtype_bytes(elements.dtype);
    const bool fits = !elements.strided && elements.runs.front().size() / bytes >= run.begin + run.elements &&
                      (found.runs.empty() || found.dtype == elements.dtype);
    if (!fits)
      refuse_key(file(run.rank), kind + " of row " + std::to_string(run.row), "as many elements as weights",
                 "fewer, or others");
    found.dtype = elements.dtype;
    found.runs.push_back(elements.runs.front().subspan(run.begin * bytes, run.elements * bytes));
  }
  return found;
}

std::optional<double> ZeroOptimizer::steps_in(std::size_t rank, std::size_t number) const {
  return number_in(file(rank), row(rank, number).find("step"));
}

double ZeroOptimizer::steps_of(std::size_t number) const {
  const auto& runs = checkpoint_.runs_of(number);
  const auto steps = runs.empty() ? std::nullopt : steps_in(runs.front().rank, runs.front().row);
  if (steps) return *steps;
  if (const auto of_group = setting_of(number, "step"); of_group.size() == 1) return of_group.front();
  if (checkpoint_.parameters()[number].elements == 0) return 0;
  refuse_key(file(runs.empty() ? 0 : runs.front().rank), "step", "a number of updates", "none");
}

// A group may have several rows: stage 3 cuts it into sub-groups.
const pickle::Dict* ZeroOptimizer::group_of(std::size_t row) const {
  for (const auto& group : held_in<pickle::List>(file(0), inner(0), "param_groups")) {
    const auto* settings = group.as<pickle::Dict>();
    if (settings != nullptr && has_row(*settings, static_cast<std::int64_t>(row))) return settings;
  }
  return nullptr;
}

std::vector<double> ZeroOptimizer::setting_of(std::size_t number, const char* key) const {
  const auto* settings = group_of(checkpoint_.parameters()[number].row);
  const auto* value = settings == nullptr ? nullptr : settings->find(key);
  if (value == nullptr) return {};
  const auto* list = value->as<pickle::List>();
  if (const auto* tuple = value->as<pickle::Tuple>()) list = &tuple->items;
  std::vector<double> numbers;
  for (const auto& item : list == nullptr ? pickle::List{*value} : *list) {
    const auto one = number_in(file(0), &item);
    if (!one) refuse_key(file(0), key + std::string(" of a group"), "numbers", std::string(item.kind()));
    numbers.push_back(*one);
  }
  return numbers;
}

std::optional<double> ZeroOptimizer::loss_scale() const {
  const auto* value = zero_state(file(0)).find("loss_scaler");
  const auto* scaler = value == nullptr ? nullptr : value->as<pickle::Dict>();
  const auto* is_dynamic = zero_state(file(0)).find("dynamic_loss_scale");
  const bool stays = is_dynamic == nullptr || is_dynamic->as<bool>() == nullptr || !*is_dynamic->as<bool>();
  return scaler == nullptr || stays ? std::nullopt : number_in(file(0), scaler->find("cur_scale"));
}

}  // namespace lockstep::detail
