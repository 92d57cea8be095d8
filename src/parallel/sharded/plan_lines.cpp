#include "parallel/sharded/plan_lines.h"

#include <lockstep/torch.h>

#include "parallel/same_lines.h"

namespace lockstep::detail {
namespace {

const char* words_for(KeepGathered keep) {
  switch (keep) {
    case KeepGathered::kWhileUsed:
      return "while they are used";
    case KeepGathered::kUntilBackward:
      return "until backward";
    case KeepGathered::kUntilStep:
      return "until the step";
  }
  return "";
}

const char* words_for(bool is_on) { return is_on ? "true" : "false"; }

std::string text_of(std::optional<at::ScalarType> dtype) {
  return dtype ? c10::toString(*dtype) : "the model's own";
}

// Without the directory.
std::string text_of(const std::optional<DiskOffload>& offload) {
  if (!offload) return "none";
  return std::string(offload->parameters ? "parameters" : "") +
         (offload->parameters && offload->optimizer ? " and " : "") +
         (offload->optimizer ? "optimizer state" : "");
}

std::string text_of(const std::optional<ErrorFeedback>& feedback) {
  if (!feedback) return "none";
  return std::to_string(feedback->decay) + ", anew after " + std::to_string(feedback->reset_every);
}

}  // namespace

std::vector<std::string> lines_of(const ShardingPlan& plan) {
  const auto& zero = plan.zero_plus_plus;
  const auto number = [](auto value) { return std::to_string(value); };
  return {
      "number of shards " + number(plan.shards),
      std::string("parameters that stay gathered ") + words_for(plan.keep),
      "auto_wrap_policy " + plan.units.print(),
      "ignored_modules " + (plan.whole_modules ? plan.whole_modules->print() : "none"),
      "activation_checkpointing " + OptionType<ActivationCheckpointing>::print(plan.activation_checkpointing),
      "mixed_precision " + OptionType<MixedPrecisionChoice>::print(plan.mixed_precision),
      "shards of type " + text_of(plan.master_dtype),
      "on disk " + text_of(plan.offload),
      std::string("release_after_every_operator ") + words_for(plan.release_after_every_operator),
      "live elements " + number(plan.max_live_elements),
      "persistent elements " + number(plan.persistent_elements) + ", " +
          number(plan.most_persistent_elements) + " of the model",
      "backward_prefetch " + OptionType<BackwardPrefetch>::print(plan.backward_prefetch),
      std::string("forward_prefetch ") + words_for(plan.forward_prefetch),
      "prefetched elements " + number(plan.most_prefetched_elements),
      "elements of a bucket " + number(plan.most_bucket_elements),
      std::string("limit_all_gathers ") + words_for(plan.limit_all_gathers),
      std::string("sync_module_states ") + words_for(plan.sync_module_states),
      std::string("broadcast_buffers ") + words_for(plan.broadcast_buffers),
      "gradients of all ranks " + std::string(plan.gradient_op == ReduceOp::kSum ? "added" : "averaged"),
      "secondary shards " + number(zero.secondary_shards),
      std::string("quantized weights ") + words_for(zero.quantized_weights) + ", frozen ones " +
          words_for(zero.quantized_frozen_weights),
      std::string("quantized gradients ") + words_for(zero.quantized_gradients) + ", " +
          number(zero.gradient_neighbours) + " neighbours, error feedback " + text_of(zero.error_feedback)};
}

void require_same_plan(const ShardingPlan& plan, const Communicator& comm) {
  require_same_lines(
      lines_of(plan), comm,
      {.what = "the ranks' options differ", .hint = "all ranks must shard a module by the same options"});
}

}  // namespace lockstep::detail
