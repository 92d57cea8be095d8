#include "advise_verb.h"

#include <unistd.h>

#include <filesystem>
#include <iostream>

#include <lockstep/advice/advise.h>
#include <lockstep/advice/memory_estimate.h>
#include <lockstep/base/error.h>

#include "base/cgroup.h"
#include "base/format.h"
#include "base/visible_devices.h"
#include "number_checks.h"

namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& expected, const std::string& got,
                         const std::string& hint = {}) {
  throw lockstep::ConfigError("advise",
                              {.what = what, .expected = expected, .got = got, .where = {}, .hint = hint});
}

bool looks_like_a_path(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".safetensors") || text.ends_with(".ckpt");
}

lockstep::ModelSize model_of(const AdviseFlags& flags) {
  if (std::filesystem::exists(flags.model)) {
    if (flags.layers)
      refuse("--layers", "nothing beside a file or folder, which shows its layers",
             std::to_string(*flags.layers));
    return lockstep::model_size(flags.model);
  }
  if (looks_like_a_path(flags.model))
    refuse("MODEL", "a file or folder that is there", '"' + flags.model + "\", which is not");
  const auto count = lockstep::parse_parameter_count(flags.model);
  if (!count)
    refuse("MODEL", count.error() + ", or a safetensors file, a checkpoint or a run directory that is there",
           '"' + flags.model + '"');
  return lockstep::transformer_of(*count, flags.layers);
}

std::int64_t size_of(const char* flag, const std::string& text) {
  const auto bytes = lockstep::parse_memory_size(text);
  if (!bytes) refuse(flag, bytes.error(), '"' + text + '"');
  return *bytes;
}

// Ranks of a node share its memory where CPUs compute.
void take_host_memory(lockstep::AdviceQuestion& question) {
  const auto machine = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  const auto limit = lockstep::detail::cgroup_limits().memory_bytes.value_or(machine);
  const auto whole = std::min(machine, limit);
  const auto ranks = std::max(1, question.world_size / std::max(1, question.nodes));
  question.memory_bytes = whole / ranks;
  question.memory_source =
      (limit < machine ? "the memory that this control group may have: " : "this machine's memory: ") +
      lockstep::memory_text(whole);
  if (ranks > 1) question.memory_source += ", shared by " + std::to_string(ranks) + " ranks";
}

void take_memory(const AdviseFlags& flags, lockstep::AdviceQuestion& question) {
  if (!flags.memory.empty()) {
    question.memory_bytes = size_of("--memory", flags.memory);
  } else if (!question.on_device) {
    take_host_memory(question);
  } else if (const auto least = lockstep::detail::least_nvidia_memory()) {
    question.memory_bytes = least;
    question.memory_source = "the smallest GPU that is visible on this machine";
  }
}

lockstep::AdviceQuestion question_of(const AdviseFlags& flags) {
  lockstep::AdviceQuestion question{.model = model_of(flags),
                                    .world_size = flags.world,
                                    .nodes = flags.nodes,
                                    .precision = flags.precision,
                                    .optimizer = flags.optimizer,
                                    .on_device = flags.accelerator == "gpu"};
  take_memory(flags, question);
  if (!flags.activations.empty()) question.activation_bytes = size_of("--activations", flags.activations);
  if (flags.batch > 0 || flags.context > 0)
    question.tokens = std::int64_t{std::max(1, flags.batch)} * std::max(1, flags.context);
  return question;
}

}  // namespace

CLI::App* add_advise(CLI::App& app, AdviseFlags& flags) {
  auto* verb = app.add_subcommand(
      "advise", "Print what each strategy needs for a model, what fits, and which flags to use");
  verb->add_option(
      "MODEL", flags.model,
      "Parameters of the model (124M, 7B, 1.3e9), or a safetensors file or folder, a checkpoint or "
      "a run directory of it");
  verb->add_option("--world", flags.world, "Ranks in all")->check(whole_number(1))->capture_default_str();
  verb->add_option("--nodes", flags.nodes, "Nodes they are on")
      ->check(whole_number(1))
      ->capture_default_str();
  verb->add_option(
      "--memory", flags.memory,
      "Memory of a rank (80GiB, 16GB): of its GPU, or its share of the node's (default: of this "
      "machine: the smallest visible GPU; else the memory, or what the control group may have of "
      "it, shared by the ranks of a node)");
  verb->add_option("--accelerator", flags.accelerator, "Where ranks compute: cpu or gpu")
      ->check(CLI::IsMember({"cpu", "gpu"}))
      ->capture_default_str();
  verb->add_option("--precision", flags.precision, "As --trainer.precision")->capture_default_str();
  verb->add_option("--optimizer", flags.optimizer,
                   "SGD, SGD-momentum, Adam, AdamW, Adagrad, Lion, Lamb or Muon")
      ->capture_default_str();
  verb->add_option("--batch", flags.batch,
                   "Samples of a rank's micro-batch, to estimate activations (default: 1)")
      ->check(whole_number(1));
  verb->add_option("--context", flags.context, "Tokens of a sample, to estimate activations (default: 1)")
      ->check(whole_number(1));
  verb->add_option("--activations", flags.activations,
                   "What forward keeps for backward, as measured (1.5GiB), instead of an estimate");
  verb->add_option("--layers", flags.layers, "Repeated blocks of a model of which MODEL is only a number")
      ->check(whole_number(1));
  verb->add_flag("--json", flags.json, "Print JSON");
  return verb;
}

int advise(const AdviseFlags& flags, const CLI::App& verb) {
  if (flags.model.empty()) {
    std::cerr << verb.help() << "lockstep: MODEL is required\n";
    return 2;
  }
  const auto advice = lockstep::advise(question_of(flags));
  std::cout << (flags.json ? lockstep::advice_json(advice) : lockstep::advice_table(advice));
  return 0;
}
