// Optimizers and schedulers as StateTrees.
#include <lockstep/optim/scheduler.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/torch.h>

#include "optim/support.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using optim_test::parameters_of;
using test::expect_error;

std::unique_ptr<Optimizer> stepped(const OptimizerFactory& factory, optim_test::Model& model, int steps = 2) {
  auto optimizer = factory.create(parameters_of(model));
  for (int step = 0; step < steps; ++step) optim_test::set_gradients(model, step), optimizer->step();
  return optimizer;
}

TEST(OptimState, HoldsGroupsAndTensorsThatAliasTheOptimizers) {
  auto model = optim_test::model();
  const auto optimizer = stepped(AdamW{.lr = 0.1, .groups = {{.pattern = "p1", .lr = 0.2}}}, model);
  const auto state = state_of(*optimizer);
  EXPECT_EQ(state.get<std::string>("name"), "AdamW");
  const auto groups = state.get_all<StateTree>("groups");
  ASSERT_EQ(groups.size(), 2);
  EXPECT_EQ(groups[0].get<double>("lr"), 0.2);
  EXPECT_EQ(groups[0].get_all<std::string>("parameters"), std::vector<std::string>{"p1"});
  EXPECT_EQ(groups[1].get_all<double>("betas"), (std::vector{0.9, 0.999}));
  const auto& kinds = state.get<StateTree>("state").get<StateTree>("p2");
  EXPECT_EQ(kinds.get<at::Tensor>("step").item<std::int64_t>(), 2);
  EXPECT_EQ(kinds.get<at::Tensor>("exp_avg").const_data_ptr(),
            optim_test::state_of(*optimizer, "p2", "exp_avg").const_data_ptr());
}

TEST(OptimState, ResumesExactlyAlsoChangedGroups) {
  for (const OptimizerFactory& factory : {OptimizerFactory(AdamW{}), OptimizerFactory(Adam{}),
                                          OptimizerFactory(SGD{.momentum = 0.9}), OptimizerFactory(SGD{})}) {
    auto through = optim_test::model();
    const auto first = stepped(factory, through);
    first->groups()[0].lr = 0.3;
    first->groups()[0].weight_decay = 0.25;
    const auto saved = state_of(*first).clone();
    optim_test::Model other = optim_test::model();
    const auto second = stepped(factory, other, 1);
    load_state(*second, saved);
    EXPECT_THAT(differences(saved, state_of(*second)), ::testing::IsEmpty());
    EXPECT_EQ(second->groups()[0].lr, 0.3);
  }
}

TEST(OptimState, IsRefusedWhereItDoesNotFitAndNothingHasChanged) {
  auto model = optim_test::model();
  const auto optimizer = stepped(AdamW{}, model);
  const auto before = state_of(*optimizer).clone();
  auto sgd_model = optim_test::model();
  const auto sgd = stepped(SGD{}, sgd_model);
  expect_error<CheckpointError>([&] { load_state(*optimizer, state_of(*sgd)); }, {"name", "AdamW", "SGD"});

  auto grouped_model = optim_test::model();
  const auto grouped = stepped(AdamW{.groups = {{.pattern = "p1"}}}, grouped_model);
  expect_error<CheckpointError>([&] { load_state(*optimizer, state_of(*grouped)); }, {"groups", "1", "2"});

  auto other_groups = OptimizerFactory(AdamW{.groups = {{.pattern = "p0"}}}).create(parameters_of(model));
  expect_error<CheckpointError>([&] { load_state(*other_groups, state_of(*grouped)); },
                                {"groups/0/parameters", "p0", "p1"});

  auto damaged = before.clone();
  auto tensors = damaged.get<StateTree>("state");
  auto kinds = tensors.get<StateTree>("p0");
  kinds.set("exp_avg", 3);
  tensors.set("p0", kinds);
  damaged.set("state", tensors);
  expect_error<CheckpointError>([&] { load_state(*optimizer, damaged); },
                                {"state/p0/exp_avg", "tensor", "integer 3"});
  EXPECT_EQ(state_of(*optimizer), before);
}

TEST(SchedulerStateTree, ContinuesWithTheRatesOfTheOptimizersState) {
  for (const SchedulerOptions& options :
       {SchedulerOptions(OneCycleLR{.max_lr = 1, .total_steps = 10}),
        SchedulerOptions(ReduceLROnPlateau{.factor = 0.5, .patience = 0})}) {
    auto model = optim_test::model();
    const auto optimizer = OptimizerFactory(AdamW{}).create(parameters_of(model));
    Scheduler first(options, *optimizer);
    const auto step = [](Scheduler& scheduler) {
      scheduler.needs_metric() ? scheduler.step(1.0) : scheduler.step();
    };
    for (int i = 0; i < 3; ++i) step(first);
    const auto saved = state_of(first);
    auto other_model = optim_test::model();
    const auto other = OptimizerFactory(AdamW{}).create(parameters_of(other_model));
    Scheduler second(options, *other);
    load_state(*other, state_of(*optimizer));
    load_state(second, saved);
    EXPECT_EQ(state_of(second), saved);
    EXPECT_EQ(other->groups()[0].lr, optimizer->groups()[0].lr);
    step(first), step(second);
    EXPECT_EQ(second.last_lr(), first.last_lr());
  }
}

TEST(SchedulerStateTree, NamesWhatIsMissing) {
  auto model = optim_test::model();
  const auto optimizer = OptimizerFactory(AdamW{}).create(parameters_of(model));
  Scheduler scheduler(StepLR{.step_size = 1}, *optimizer);
  StateTree all;
  all.set("scheduler", StateTree());
  expect_error<CheckpointError>([&] { load_state(scheduler, all.get<StateTree>("scheduler")); },
                                {"scheduler/last_step", "integer", "none"});
}

}  // namespace
}  // namespace lockstep
