// The forms in which a model can be trained, and what memory its states take in each: the one table behind
// `lockstep advise` and `lockstep estimate-memory`.
//
// Every figure is a number of bytes for each parameter, of one of three kinds: what each rank has of all
// parameters, what ranks share among them, and what is there of the largest unit while it is in use.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep::detail {

/// Bytes for each parameter.
struct BytesPerParameter {
  double whole = 0;    ///< of all parameters, on every rank
  double shared = 0;   ///< of all parameters, spread over the ranks that share them
  double of_unit = 0;  ///< of those of the largest unit, on every rank
  double of_root = 0;  ///< of those that belong to no unit, on every rank

  BytesPerParameter& operator+=(const BytesPerParameter& other);
};

/// The sizes that they are multiplied by, and among how many ranks a model is spread.
struct ModelSpread {
  double parameters = 0;
  double largest_unit = 0;
  double root = 0;   ///< parameters of no unit
  double ranks = 1;  ///< that share the shards
};

double bytes_of(const BytesPerParameter& bytes, const ModelSpread& model);

/// As an integer; what does not fit is the largest number that does.
std::int64_t whole_bytes(double amount);

/// Where a kind of state is between steps.
enum class Kept {
  kWhole,     ///< every rank has all of it
  kSharded,   ///< every rank has its shard
  kOffloaded  ///< every rank has its shard on disk or, where a device computes, on the host
};

/// What of the parameters is put together while a step computes.
enum class Gathered {
  kNothing,       ///< it is there already
  kUnits,         ///< those of units in use
  kModel,         ///< all, from forward to backward
  kModelInPlace,  ///< all, from step to step: the shard is a part of it
  kLive           ///< all, up to the elements that DeepSpeed lets live
};

/// Who holds one copy together.
enum class Sharers { kAllRanks, kRanksOfNode, kNobody };

enum class Preferred { kAnywhere, kAcrossNodes, kNever };
enum class Computes { kAnywhere, kOnCpu, kOnDevice };

/// One way to train. The first ones cost the least traffic and computation.
struct StrategyForm {
  std::string_view name;
  std::string_view flags;
  Kept parameters = Kept::kWhole;  ///< with their gradients
  Kept optimizer = Kept::kWhole;
  Gathered gathered = Gathered::kNothing;
  double model_sent = 0;  ///< how often the model's bytes pass a rank in a step, on very many ranks
  Sharers sharers = Sharers::kAllRanks;
  bool checkpoints_activations = false;
  Preferred preferred = Preferred::kAnywhere;  ///< where it is recommended, if it fits
  Computes computes = Computes::kAnywhere;
};

std::span<const StrategyForm> strategy_forms();

/// The form of that name. There must be one.
const StrategyForm& strategy_form(std::string_view name);

/// `form.model_sent` for a model of so many parameters.
double model_sent(const StrategyForm& form, double parameters);

/// The bytes of one number.
struct ElementBytes {
  double kept = 4;       ///< parameters and gradients, in the type that the optimizer steps
  double computed = 4;   ///< parameters as operators use them
  double optimizer = 8;  ///< all of the optimizer's state of one parameter
};

/// What model states take on a rank.
struct StateBytes {
  BytesPerParameter parameters, gradients, optimizer;
  BytesPerParameter buffers;  ///< gathered parameters, casts, gradients that are on their way

  BytesPerParameter sum() const;
};

/// Where a device computes, gradients of ddp are copied into buckets, and what is offloaded is on the host,
/// and has to be gathered even on one rank.
StateBytes state_bytes(const StrategyForm& form, const ElementBytes& element, const ModelSpread& model,
                       bool on_device);

}  // namespace lockstep::detail
