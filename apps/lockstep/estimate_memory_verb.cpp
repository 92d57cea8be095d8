#include "estimate_memory_verb.h"

#include <filesystem>
#include <iostream>

#include <lockstep/base/error.h>
#include <lockstep/base/option_type.h>
#include <lockstep/advice/memory_estimate.h>
#include <lockstep/formats/checkpoint_tools.h>

#include "number_checks.h"

namespace {

using lockstep::ConfigError;

[[noreturn]] void refuse_estimate(const std::string& what, const std::string& expected,
                                  const std::string& got, const std::string& hint = {}) {
  throw ConfigError("estimate-memory",
                    {.what = what, .expected = expected, .got = got, .where = {}, .hint = hint});
}

std::int64_t parameter_count(const std::string& flag, const std::string& text) {
  const auto count = lockstep::parse_parameter_count(text);
  if (!count) refuse_estimate(flag, count.error(), '"' + text + '"');
  return *count;
}

// Of the weights in a file or checkpoint of that name, or the number that it is, without a largest layer.
lockstep::ModelSize size_of(const std::string& model) {
  if (std::filesystem::exists(model)) return lockstep::model_size(model);
  const auto count = lockstep::parse_parameter_count(model);
  if (!count)
    refuse_estimate("MODEL", count.error() + ", or a safetensors file or checkpoint that is there",
                    '"' + model + '"');
  return {.parameters = *count};
}

lockstep::MemoryQuestion question_of(const EstimateMemoryFlags& flags) {
  lockstep::MemoryQuestion question{.gpus_per_node = flags.world / flags.nodes,
                                    .nodes = flags.nodes,
                                    .stage = flags.stage,
                                    .additional_buffer_factor = flags.buffer_factor};
  if (flags.world % flags.nodes != 0)
    refuse_estimate("--world and --nodes", "as many ranks on each node",
                    std::to_string(flags.world) + " ranks on " + std::to_string(flags.nodes) + " nodes");
  const auto size = size_of(flags.model);
  question.params = size.parameters;
  if (flags.stage < 3) return question;
  if (flags.largest_layer.empty() && size.largest_layer == 0)
    refuse_estimate("--largest-layer", "the parameters of the largest layer, which stage 3 gathers", "none");
  question.largest_layer = flags.largest_layer.empty()
                               ? size.largest_layer
                               : parameter_count("--largest-layer", flags.largest_layer);
  if (question.largest_layer > question.params)
    refuse_estimate("--largest-layer",
                    "at most the parameters of the model, " + std::to_string(question.params),
                    std::to_string(question.largest_layer));
  return question;
}

/// Whether `row` is what --offload asks for.
template <class Row>
bool is_asked_for(const Row& row, const std::string& offload) {
  if (offload == "any") return true;
  if (offload == "none") return !row.offload_optimizer;
  return row.offload_optimizer && row.offload_param == (offload == "all");
}

}  // namespace

CLI::App* add_estimate_memory(CLI::App& app, EstimateMemoryFlags& flags) {
  auto* verb = app.add_subcommand(
      "estimate-memory",
      "Print DeepSpeed's estimate of the memory that parameters, gradients and Adam's states take");
  verb->add_option(
      "MODEL", flags.model,
      "Parameters of the model (124M, 1.5B, 1500000000), or a safetensors file or checkpoint of it");
  verb->add_option("--world", flags.world, "Ranks in all")->check(whole_number(1))->capture_default_str();
  verb->add_option("--nodes", flags.nodes, "Nodes they are on")
      ->check(whole_number(1))
      ->capture_default_str();
  verb->add_option("--stage", flags.stage, "ZeRO's stage, 0 to 3")
      ->check(whole_number(0, 3))
      ->capture_default_str();
  verb->add_option("--offload", flags.offload, "Show only: none, optimizer, all (stage 3); or any")
      ->check(CLI::IsMember({"any", "none", "optimizer", "all"}))
      ->capture_default_str();
  verb->add_option("--largest-layer", flags.largest_layer,
                   "Parameters of the largest layer (stage 3); of a file that of its largest module");
  verb->add_option("--buffer-factor", flags.buffer_factor, "Memory on the host beyond what states take")
      ->check(CLI::Range(1.0, 100.0))
      ->capture_default_str();
  return verb;
}

int estimate_memory(const EstimateMemoryFlags& flags, const CLI::App& verb) {
  if (flags.model.empty()) {
    std::cerr << verb.help() << "lockstep: MODEL is required\n";
    return 2;
  }
  const auto question = question_of(flags);
  const auto is_left_out = [&](const auto& row) { return !is_asked_for(row, flags.offload); };
  auto rows = lockstep::estimate_memory(question);
  auto ranks = lockstep::estimate_rank_memory(question);
  std::erase_if(rows, is_left_out);
  std::erase_if(ranks, is_left_out);
  if (rows.empty())
    refuse_estimate("--offload", flags.stage == 0 ? "none at stage 0" : "none or optimizer below stage 3",
                    '"' + flags.offload + '"');
  std::cout << lockstep::memory_table(question, rows) << lockstep::rank_memory_table(question, ranks);
  return 0;
}
