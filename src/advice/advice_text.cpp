// Advice as a table for a terminal, and as JSON.
#include <lockstep/advice/advise.h>

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/format.h"

namespace lockstep {
namespace {

std::string size_text(std::int64_t bytes) { return bytes == 0 ? "0" : memory_text(bytes); }

// 124,000,000
std::string with_commas(std::int64_t count) {
  auto digits = std::to_string(count);
  for (auto place = static_cast<std::ptrdiff_t>(digits.size()) - 3; place > 0; place -= 3)
    digits.insert(static_cast<std::size_t>(place), ",");
  return digits;
}

std::string counted(std::int64_t count, const std::string& noun) {
  return with_commas(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string activations_text(const AdviceQuestion& question) {
  if (question.activation_bytes) return "activations as given";
  if (question.tokens == 0) return "without activations (--batch and --context, or --activations)";
  return "activations of " + counted(question.tokens, "token") + ", estimated";
}

std::string heading(const AdviceQuestion& question) {
  auto text = counted(question.model.parameters, "parameter");
  if (question.model.units > 0) text += " in " + counted(question.model.units, "unit");
  text += fmt::format(", {}, {}; {} on {}", question.optimizer, question.precision,
                      counted(question.world_size, "rank"), counted(question.nodes, "node"));
  if (question.memory_bytes) text += ", " + size_text(*question.memory_bytes) + " for each";
  if (!question.memory_source.empty()) text += " (" + question.memory_source + ")";
  return text + ";\n" + activations_text(question) + "\n\n";
}

std::string fits_text(const StrategyAdvice& row) {
  if (!row.fits) return "";
  return *row.fits ? "yes" : "no";
}

std::string line(const StrategyAdvice& row, std::size_t width) {
  return fmt::format("{} {:<{}} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {:<4} {:>9} {:>9}  {}\n",
                     row.is_recommended ? '*' : ' ', row.name, width, size_text(row.parameters_bytes),
                     size_text(row.gradients_bytes), size_text(row.optimizer_bytes),
                     size_text(row.activations_bytes), size_text(row.buffers_bytes),
                     size_text(row.peak_bytes), fits_text(row), size_text(row.offloaded_bytes),
                     size_text(row.sent_bytes), row.flags);
}

std::string ranks_flags(const AdviceQuestion& question) {
  auto flags = fmt::format("--trainer.devices {}", question.world_size / question.nodes);
  if (question.nodes > 1) flags += fmt::format(" --trainer.num_nodes {}", question.nodes);
  if (question.on_device) flags += " --trainer.accelerator gpu";
  if (question.precision != "32-true") flags += " --trainer.precision " + question.precision;
  return flags;
}

nlohmann::ordered_json question_json(const AdviceQuestion& question) {
  nlohmann::ordered_json json{{"parameters", question.model.parameters},
                              {"units", question.model.units},
                              {"largest_unit", question.model.largest_unit},
                              {"world_size", question.world_size},
                              {"nodes", question.nodes},
                              {"memory_bytes", nullptr},
                              {"precision", question.precision},
                              {"optimizer", question.optimizer},
                              {"tokens", question.tokens},
                              {"activation_bytes", nullptr},
                              {"accelerator", question.on_device ? "gpu" : "cpu"}};
  if (question.memory_bytes) json["memory_bytes"] = *question.memory_bytes;
  if (!question.memory_source.empty()) json["memory_source"] = question.memory_source;
  if (question.activation_bytes) json["activation_bytes"] = *question.activation_bytes;
  return json;
}

nlohmann::ordered_json row_json(const StrategyAdvice& row) {
  nlohmann::ordered_json json{{"name", row.name},
                              {"flags", row.flags},
                              {"parameters_bytes", row.parameters_bytes},
                              {"gradients_bytes", row.gradients_bytes},
                              {"optimizer_bytes", row.optimizer_bytes},
                              {"activations_bytes", row.activations_bytes},
                              {"buffers_bytes", row.buffers_bytes},
                              {"peak_bytes", row.peak_bytes},
                              {"offloaded_bytes", row.offloaded_bytes},
                              {"sent_bytes", row.sent_bytes},
                              {"fits", nullptr},
                              {"recommended", row.is_recommended}};
  if (row.fits) json["fits"] = *row.fits;
  return json;
}

}  // namespace

std::string advice_table(const Advice& advice) {
  std::size_t width = 0;
  for (const auto& row : advice.strategies) width = std::max(width, row.name.size());
  auto text = heading(advice.question);
  text += fmt::format("  {:<{}} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {:<4} {:>9} {:>9}  {}\n", "each rank",
                      width, "params", "grads", "optimizer", "activ.", "buffers", "peak", "fits", "offloaded",
                      "sent/step", "flags");
  for (const auto& row : advice.strategies) text += line(row, width);
  const auto* const chosen = advice.recommended();
  if (chosen == nullptr) return text + "\n" + advice.reason + "\n";
  const auto devices = chosen->name == "single_device" ? "" : " " + ranks_flags(advice.question);
  return text + "\n* " + advice.reason + ":\n  " + chosen->flags + devices + "\n";
}

std::string advice_json(const Advice& advice) {
  nlohmann::ordered_json json{{"question", question_json(advice.question)},
                              {"strategies", nlohmann::ordered_json::array()},
                              {"recommended", nullptr},
                              {"reason", advice.reason}};
  for (const auto& row : advice.strategies) json["strategies"].push_back(row_json(row));
  if (const auto* const chosen = advice.recommended()) json["recommended"] = chosen->name;
  return json.dump(2) + "\n";
}

}  // namespace lockstep
