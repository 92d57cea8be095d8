#include "train/loops/run_diagnoses.h"

#include <unistd.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <lockstep/base/rank_status.h>

#include "base/diagnoses.h"
#include "base/format.h"

namespace lockstep::detail {

void DataWaits::add(Clock::time_point asked, Clock::time_point came, std::int64_t samples) {
  if (is_over_) return;
  if (++batches_ == 0) {
    is_over_ = !diagnoses().data;
    began_ = came;
  } else {
    waited_ += came - asked;
    samples_ += samples;
  }
  came_ = came;
}

std::string DataWaits::take_warning() {
  using Seconds = std::chrono::duration<double>;
  constexpr auto kLeastTime = std::chrono::seconds(3);
  constexpr std::int64_t kLeastBatches = 10;
  constexpr double kShare = 0.2;
  if (is_over_ || batches_ < kLeastBatches || came_ - began_ < kLeastTime) return {};
  const double all = Seconds(came_ - began_).count(), waited = Seconds(waited_).count();
  if (waited <= kShare * all) return {};
  is_over_ = true;
  const auto batches = static_cast<double>(batches_);
  const auto of_batch = [&](double seconds) { return two_digits(1e3 * seconds / batches) + " ms"; };
  return "this rank waits for data " + std::to_string(std::lround(100 * waited / all)) +
         " % of the time: " + two_digits(waited) + " s of " + two_digits(all) + " s in " +
         std::to_string(batches_) + " batches; one of " + std::to_string(samples_ / batches_) +
         " samples is waited for " + of_batch(waited) + ", and trained with in " + of_batch(all - waited) +
         "; have batches made ahead, by num_workers and prefetch_factor of the loader, or do less for a "
         "sample "
         "in the data set";
}

namespace {

void add_way(std::string& ways, const std::string& way) { ways += (ways.empty() ? "" : "; ") + way; }

bool is_sharded(const RunSetup& setup) {
  if (const auto* fsdp = std::get_if<Fsdp>(&setup.options.strategy))
    return fsdp->sharding_strategy != ShardingStrategy::kNoShard;
  return setup.deepspeed && setup.deepspeed->zero_optimization.stage > 0;
}

bool is_offloaded(const RunSetup& setup) {
  using deepspeed::OffloadDevice;
  if (const auto* fsdp = std::get_if<Fsdp>(&setup.options.strategy)) return fsdp->cpu_offload;
  if (!setup.deepspeed) return false;
  const auto& zero = setup.deepspeed->zero_optimization;
  return zero.offload_optimizer.device != OffloadDevice::kNone ||
         zero.offload_param.device != OffloadDevice::kNone;
}

bool is_checkpointed(const StrategyOptions& strategy) {
  const auto* fsdp = std::get_if<Fsdp>(&strategy);
  return fsdp != nullptr &&
         OptionType<ActivationCheckpointing>::print(fsdp->activation_checkpointing) != "false";
}

}  // namespace

std::string ways_to_make_room(const RunSetup& setup, std::int64_t batch_size) {
  const auto& options = setup.options;
  const bool is_fsdp = std::holds_alternative<Fsdp>(options.strategy);
  std::string ways;
  if (batch_size > 1)
    add_way(ways, "a batch_size below " + std::to_string(batch_size) +
                      ", with --trainer.accumulate_grad_batches for as large a step");
  if (!is_sharded(setup))
    add_way(ways, std::string("--trainer.strategy fsdp") +
                      (is_fsdp ? " with sharding_strategy FULL_SHARD" : "") +
                      (setup.environment->world_size() > 1 ? "" : " with --trainer.devices 2"));
  if (!is_checkpointed(options.strategy))
    add_way(ways, is_fsdp ? "--trainer.strategy.activation_checkpointing true"
                          : "ls::apply_activation_checkpointing");
  if (std::holds_alternative<Fp32>(options.precision)) add_way(ways, "--trainer.precision bf16-mixed");
  if (!is_offloaded(setup)) add_way(ways, "--trainer.strategy fsdp_cpu_offload");
  return ways + (ways.empty() ? "" : "; ") + "lockstep advise tells what each takes";
}

namespace {

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

std::int64_t resident_bytes() {
  std::int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

struct OptimizerBytes {
  std::int64_t parameters = 0, gradients = 0, state = 0;
};

// State that is on disk would have to be read.
OptimizerBytes optimizer_bytes(const RunSetup& setup, bool has_stepped) {
  OptimizerBytes bytes;
  for (const auto& [module, optimizer, config, scheduler] : setup.optimizers) {
    for (const auto& [name, tensor] : optimizer->parameters()) {
      bytes.parameters += bytes_of(tensor);
      bytes.gradients += bytes_of(tensor.grad());
    }
    if (!has_stepped || is_offloaded(setup)) continue;
    for (const auto& state : optimizer->state()) bytes.state += bytes_of(state.tensor);
  }
  return bytes;
}

}  // namespace

void MemoryNotes::begin(const RunSetup& setup, std::int64_t batch_size) {
  is_done_ = !diagnoses().memory;
  if (is_done_) return;
  before_training_ = resident_bytes();
  ways_ = ways_to_make_room(setup, batch_size);
  note_memory(before_training_, optimizer_bytes(setup, false).parameters, 0, 0, ways_);
}

void MemoryNotes::after_step(const RunSetup& setup) {
  if (is_done_) return;
  is_done_ = true;
  const auto bytes = optimizer_bytes(setup, true);
  note_memory(before_training_, bytes.parameters, bytes.gradients, bytes.state, ways_);
}

}  // namespace lockstep::detail
