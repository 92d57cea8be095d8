#include "formats/zero_optimizer.h"

#include <algorithm>

#include <lockstep/base/error.h>

#include "formats/file_text.h"
#include "formats/zero_checkpoint.h"

namespace lockstep::detail {
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
