// What each strategy needs of a rank for a model, what of it fits, and which to take: `lockstep advise`.
//
// docs/choosing.md is the guide; what is counted, and how far it is from measured peaks, stands there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/formats/checkpoint_tools.h>

namespace lockstep {

/// What is to be trained, and where.
struct AdviceQuestion {
  ModelSize model = {};  ///< by model_size(), or by transformer_of(); parameters are obligatory
  int world_size = 1;    ///< ranks of the job
  int nodes = 1;         ///< as many ranks on each
  /// What a rank may use; none: nothing is said to fit. On a device the device's. Bytes.
  std::optional<std::int64_t> memory_bytes = {};
  std::string memory_source = {};     ///< whose memory that is, for the table; empty: it was given
  std::string precision = "32-true";  ///< as the Trainer's
  std::string optimizer = "AdamW";    ///< SGD, SGD-momentum, Adam, AdamW, Adagrad, Lion, Lamb or Muon
  /// Of one micro-batch of a rank: samples x what a sample has of tokens. For an estimate of activations.
  std::int64_t tokens = 0;
  /// What forward keeps for backward of one micro-batch, as measured; goes before `tokens`. Bytes.
  std::optional<std::int64_t> activation_bytes = {};
  bool on_device = false;  ///< ranks compute on a device each, and offload to the host; else to disk
};

/// What a strategy needs of a rank at its peak: between forward and backward, from the second step on, where
/// each step has one micro-batch. Without the process itself: LibTorch, data, what malloc keeps. Bytes.
struct StrategyAdvice {
  std::string name = {};               ///< of the strategy, as `--trainer.strategy` takes it
  std::string flags = {};              ///< of a program with a Trainer
  std::int64_t parameters_bytes = 0;   ///< bytes of parameters, between steps
  std::int64_t gradients_bytes = 0;    ///< bytes of gradients
  std::int64_t optimizer_bytes = 0;    ///< bytes of the optimizer's state
  std::int64_t activations_bytes = 0;  ///< bytes that forward keeps for backward
  std::int64_t buffers_bytes = 0;      ///< gathered parameters, casts, gradients on their way
  std::int64_t peak_bytes = 0;         ///< all of these
  std::int64_t offloaded_bytes = 0;    ///< on disk or on the host
  std::int64_t sent_bytes = 0;         ///< by the rank, in a step
  std::optional<bool> fits = {};       ///< with a tenth of the memory to spare; none where it is not known
  bool is_recommended = false;         ///< whether advise() would take it
};

/// What advise() answers.
struct Advice {
  AdviceQuestion question = {};                 ///< what was asked
  std::vector<StrategyAdvice> strategies = {};  ///< what costs the least traffic and computation first
  std::string reason = {};                      ///< why that one is recommended, or none is

  /// Null where none fits, or no memory was given.
  LOCKSTEP_API const StrategyAdvice* recommended() const;
};

/// A row for each form of every strategy. The first one that fits is recommended, of those that are for
/// several ranks or for one, whichever there are.
/// @throws ConfigError naming the member that is wrong
LOCKSTEP_API Advice advise(const AdviceQuestion& question);

/// A transformer of so many parameters and layers; without `layers` as wide for its depth as GPT-2 is (64
/// numbers for each layer). @throws ConfigError where either is below 1
LOCKSTEP_API ModelSize transformer_of(std::int64_t parameters, std::optional<std::int64_t> layers = {});

/// "80GiB", "80GB", "512 MiB", "1.5G", "1000000": bytes, more than 0. K, M, G and T are powers of 1024, as
/// are KiB, ...; KB, ... are powers of 1000.
LOCKSTEP_API Expected<std::int64_t> parse_memory_size(std::string_view text);

/// For a terminal.
LOCKSTEP_API std::string advice_table(const Advice& advice);

/// {"question": {...}, "strategies": [{"name", "flags", "parameters_bytes", ..., "fits", "recommended"},
/// ...], "recommended": name or null, "reason"}
LOCKSTEP_API std::string advice_json(const Advice& advice);

}  // namespace lockstep
