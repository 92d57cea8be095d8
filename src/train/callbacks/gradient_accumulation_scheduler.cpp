#include <lockstep/train/callbacks/gradient_accumulation_scheduler.h>

#include <lockstep/train/trainer_options.h>

#include "train/callbacks/named_options.h"
#include "train/callbacks/refuse.h"

namespace lockstep {
namespace {

constexpr detail::Refusal refuse_schedule{"GradientAccumulationScheduler"};

AccumulationSchedule::Steps checked(AccumulationSchedule::Steps scheduling) {
  if (scheduling.empty()) refuse_schedule("scheduling", "micro-batches by epoch", "nothing");
  for (const auto& [epoch, micro_batches] : scheduling) {
    if (epoch < 0) refuse_schedule("epoch", ">= 0", std::to_string(epoch));
    if (micro_batches < 1) refuse_schedule("micro-batches", ">= 1", std::to_string(micro_batches));
  }
  return scheduling;
}

}  // namespace

GradientAccumulationScheduler::GradientAccumulationScheduler(AccumulationSchedule::Steps scheduling)
    : schedule_(checked(std::move(scheduling))) {}

void GradientAccumulationScheduler::setup(TrainContext& context) {
  if (context.stage() != Stage::kFit) return;
  const auto& own = context.options().accumulate_grad_batches;
  if (own != AccumulationSchedule(1) && own != schedule_)
    refuse_schedule("in a Trainer with accumulate_grad_batches", "one of the two", own.print());
  context.set_accumulate_grad_batches(schedule_);
}

void describe(OptionVisitor& v, AccumulationOptions& o) {
  v.field("scheduling", o.scheduling, "Micro-batches per optimizer step by epoch: {4: 2}; required");
}

}  // namespace lockstep
