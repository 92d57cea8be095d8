#include <lockstep/advice/advise.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <lockstep/base/error.h>

#include "advice/strategy_table.h"
#include "base/format.h"

namespace lockstep {
namespace {

using detail::Computes;
using detail::ElementBytes;
using detail::Kept;
using detail::ModelSpread;
using detail::Preferred;
using detail::Sharers;
using detail::StrategyForm;
using detail::whole_bytes;

struct NamedPrecision {
  std::string_view name;
  double kept, computed;
};

constexpr std::array kPrecisions{NamedPrecision{"32-true", 4, 4},    NamedPrecision{"32", 4, 4},
                                 NamedPrecision{"16-mixed", 4, 2},   NamedPrecision{"16", 4, 2},
                                 NamedPrecision{"bf16-mixed", 4, 2}, NamedPrecision{"bf16", 4, 2},
                                 NamedPrecision{"16-true", 2, 2},    NamedPrecision{"bf16-true", 2, 2},
                                 NamedPrecision{"64-true", 8, 8},    NamedPrecision{"64", 8, 8}};

struct NamedOptimizer {
  std::string_view name;
  double numbers;  // of state for each parameter
};

// Most parameters of what Muon is for are in matrices.
constexpr std::array kOptimizers{NamedOptimizer{"SGD", 0},     NamedOptimizer{"SGD-momentum", 1},
                                 NamedOptimizer{"Adam", 2},    NamedOptimizer{"AdamW", 2},
                                 NamedOptimizer{"Adagrad", 1}, NamedOptimizer{"Lion", 1},
                                 NamedOptimizer{"Lamb", 2},    NamedOptimizer{"Muon", 1}};

[[noreturn]] void refuse(const std::string& what, const std::string& expected, const std::string& got,
                         const std::string& hint = {}) {
  throw ConfigError("advise", {.what = what, .expected = expected, .got = got, .hint = hint});
}

template <class Row, std::size_t kCount>
const Row& row_named(const std::array<Row, kCount>& rows, const char* what, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& row : rows) {
    if (lower_case(row.name) == lower_case(name)) return row;
    names.emplace_back(row.name);
  }
  refuse(what, joined(names), '"' + name + '"', did_you_mean(nearest_name(name, names)));
}

ElementBytes element_bytes(const AdviceQuestion& question) {
  const auto& precision = row_named(kPrecisions, "precision", question.precision);
  const auto& optimizer = row_named(kOptimizers, "optimizer", question.optimizer);
  const double state = std::max(4.0, precision.kept);  // float32 also for parameters in 16 bits
  return {.kept = precision.kept, .computed = precision.computed, .optimizer = optimizer.numbers * state};
}

void check(const AdviceQuestion& question) {
  const auto at_least_1 = [](const char* what, std::int64_t value) {
    if (value < 1) refuse(what, "at least 1", std::to_string(value));
  };
  at_least_1("parameters of the model", question.model.parameters);
  at_least_1("world size", question.world_size);
  at_least_1("nodes", question.nodes);
  if (question.memory_bytes) at_least_1("memory of a rank, in bytes", *question.memory_bytes);
  if (question.tokens < 0) refuse("tokens of a micro-batch", "at least 0", std::to_string(question.tokens));
  if (question.activation_bytes.value_or(0) < 0)
    refuse("activations, in bytes", "at least 0", std::to_string(*question.activation_bytes));
  const auto ranks = std::to_string(question.world_size) + " ranks on " + std::to_string(question.nodes) +
                     (question.nodes == 1 ? " node" : " nodes");
  if (question.world_size < question.nodes)
    refuse("world size and nodes", "at least one rank on each node", ranks);
  if (question.world_size % question.nodes != 0)
    refuse("world size and nodes", "as many ranks on each node", ranks);
}

// Beside matrices' inputs and outputs a transformer keeps what normalisations are given, and rows of
// attention: a sixteenth more. Of a block that is computed again its input is kept, a sixteenth of it all,
// and one block is there at a time.
constexpr double kShareOfInputs = 1.0 / 16;

double activation_bytes(const AdviceQuestion& question, double computed_bytes) {
  if (question.activation_bytes) return static_cast<double>(*question.activation_bytes);
  return static_cast<double>(question.tokens) * static_cast<double>(question.model.features) *
         computed_bytes * (1 + kShareOfInputs);
}

double checkpointed_share(const ModelSize& model) {
  return std::min(1.0, kShareOfInputs + 1.0 / static_cast<double>(std::max<std::int64_t>(1, model.units)));
}

int sharers_of(const AdviceQuestion& question, const StrategyForm& form) {
  if (form.sharers == Sharers::kNobody) return 1;
  return form.sharers == Sharers::kAllRanks ? question.world_size : question.world_size / question.nodes;
}

ModelSpread spread_of(const AdviceQuestion& question, const StrategyForm& form) {
  const auto& model = question.model;
  const bool has_units = model.units > 0;
  return {.parameters = static_cast<double>(model.parameters),
          .largest_unit = static_cast<double>(has_units ? model.largest_unit : model.parameters),
          .root = static_cast<double>(has_units ? model.parameters - model.in_units : 0),
          .ranks = static_cast<double>(sharers_of(question, form))};
}

// Elements of which a step from disk has the state in memory, in each of three tiles.
constexpr double kTiles = 3;
constexpr double kTileElements = 1 << 20;

double tile_bytes(const AdviceQuestion& question, const StrategyForm& form, const ElementBytes& element) {
  if (form.optimizer != Kept::kOffloaded || question.on_device) return 0;
  const auto tile = std::max(kTileElements, static_cast<double>(question.model.largest_layer));
  const auto all = static_cast<double>(question.model.parameters) / question.world_size;
  return std::min(kTiles * tile, all) * element.optimizer;
}

double offloaded_bytes(const StrategyForm& form, const ElementBytes& element, const ModelSpread& model) {
  const auto of = [&](Kept kept, double bytes) { return kept == Kept::kOffloaded ? bytes : 0; };
  return (of(form.parameters, 2 * element.kept) + of(form.optimizer, element.optimizer)) * model.parameters /
         model.ranks;
}

// Each pass sends a rank's part of the model to all others that share it. Across nodes copies of a shard are
// averaged.
double sent_bytes(const AdviceQuestion& question, const StrategyForm& form, const ElementBytes& element,
                  const ModelSpread& model) {
  const auto of_all = [](double ranks) { return (ranks - 1) / ranks; };
  if (form.model_sent == 0) return 0;
  const double bytes = model.parameters * (form.parameters == Kept::kWhole ? element.kept : element.computed);
  const double passes = detail::model_sent(form, model.parameters);
  if (form.sharers != Sharers::kRanksOfNode) return passes * bytes * of_all(question.world_size);
  return passes * bytes * of_all(model.ranks) + 2 * bytes / model.ranks * of_all(question.nodes);
}

StrategyAdvice advice_on(const AdviceQuestion& question, const StrategyForm& form,
                         const ElementBytes& element) {
  const auto model = spread_of(question, form);
  const auto bytes = detail::state_bytes(form, element, model, question.on_device);
  const auto kept = activation_bytes(question, element.computed);
  StrategyAdvice advice{
      .name = std::string(form.name),
      .flags = std::string(form.flags),
      .parameters_bytes = whole_bytes(detail::bytes_of(bytes.parameters, model)),
      .gradients_bytes = whole_bytes(detail::bytes_of(bytes.gradients, model)),
      .optimizer_bytes = whole_bytes(detail::bytes_of(bytes.optimizer, model)),
      .activations_bytes =
          whole_bytes(form.checkpoints_activations ? kept * checkpointed_share(question.model) : kept),
      .buffers_bytes =
          whole_bytes(detail::bytes_of(bytes.buffers, model) + tile_bytes(question, form, element)),
      .offloaded_bytes = whole_bytes(offloaded_bytes(form, element, model)),
      .sent_bytes = whole_bytes(sent_bytes(question, form, element, model))};
  const auto peak = static_cast<double>(advice.parameters_bytes) +
                    static_cast<double>(advice.gradients_bytes) +
                    static_cast<double>(advice.optimizer_bytes) +
                    static_cast<double>(advice.activations_bytes) + static_cast<double>(advice.buffers_bytes);
  advice.peak_bytes = whole_bytes(peak);
  constexpr double kUsed = 0.9;
  if (question.memory_bytes) advice.fits = peak <= kUsed * static_cast<double>(*question.memory_bytes);
  return advice;
}

bool is_offered(const AdviceQuestion& question, const StrategyForm& form) {
  const auto other = question.on_device ? Computes::kOnCpu : Computes::kOnDevice;
  if (form.checkpoints_activations && question.model.units < 2) return false;
  return form.computes != other;
}

bool takes_less_on_one_rank(const StrategyForm& form) {
  return form.checkpoints_activations || form.parameters == Kept::kOffloaded ||
         form.optimizer == Kept::kOffloaded;
}

bool is_candidate(const AdviceQuestion& question, const StrategyForm& form) {
  const bool is_alone = question.world_size == 1;
  if (form.name == "single_device") return is_alone;
  if (form.preferred == Preferred::kAcrossNodes) return question.nodes > 1;
  return form.preferred == Preferred::kAnywhere && (!is_alone || takes_less_on_one_rank(form));
}

std::string reason_for(const Advice& advice) {
  if (!advice.question.memory_bytes) return "give the memory of a rank (--memory) for a recommendation";
  const auto* const chosen = advice.recommended();
  if (chosen == nullptr) {
    const auto& rows = advice.strategies;
    const auto least = std::ranges::min_element(rows, {}, &StrategyAdvice::peak_bytes);
    return "nothing fits with a tenth to spare; the least is " + least->name +
           ": fewer samples or tokens in a micro-batch, more ranks or a lower precision take less";
  }
  if (chosen->name == "single_device") return "the model fits on one rank";
  if (chosen->name == "ddp") return "every rank can hold the whole model, and no strategy sends less";
  return "the first that fits with a tenth to spare, in the order of what a step costs";
}

}  // namespace

const StrategyAdvice* Advice::recommended() const {
  const auto found = std::ranges::find(strategies, true, &StrategyAdvice::is_recommended);
  return found == strategies.end() ? nullptr : &*found;
}

Advice advise(const AdviceQuestion& question) {
  check(question);
  const auto element = element_bytes(question);
  Advice advice{.question = question};
  bool is_open = true;
  for (const auto& form : detail::strategy_forms()) {
    if (!is_offered(question, form)) continue;
    auto row = advice_on(question, form, element);
    row.is_recommended = is_open && row.fits.value_or(false) && is_candidate(question, form);
    is_open = is_open && !row.is_recommended;
    advice.strategies.push_back(std::move(row));
  }
  advice.reason = reason_for(advice);
  return advice;
}

}  // namespace lockstep
