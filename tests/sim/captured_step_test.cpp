// Steps that are captured as a whole: the bits of those that are not, and the reason where one cannot be.
#include <algorithm>

#include <lockstep/device/captured_step.h>

#include <lockstep/device/torch_device.h>
#include <lockstep/fabric/fabric.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/precision/grad_scaler.h>

#include "device/step_recording.h"
#include "sim/installed.h"
#include "sim/sim_accelerator.h"

namespace lockstep::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Tensors = CapturedStep::Tensors;

class SimCapturedStep : public SimDeviceTest {};

at::Tensor number(double value) { return at::full({2}, value, sim_floats()); }

TEST_F(SimCapturedStep, IsReplayedWithNewInputsAfterTheWarmUp) {
  int calls = 0;
  const auto sum = at::zeros({2}, sim_floats());
  CapturedStep step(
      kSim,
      [&](const Tensors& inputs) {
        ++calls;
        sum.add_(inputs[0]);
        return Tensors{sum * 10};
      },
      /*warm_up=*/2);
  std::vector<float> found;
  for (int i = 1; i <= 6; ++i) found.push_back(on_cpu(step({number(i)})[0])[0].item<float>());
  EXPECT_EQ(found, (std::vector<float>{10, 30, 60, 100, 150, 210}));
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(step.replays(), 4);
  EXPECT_EQ(step.refusal(), "");
}

TEST_F(SimCapturedStep, CallsTheFunctionForInputsOfOtherShapes) {
  int calls = 0;
  CapturedStep step(
      kSim,
      [&](const Tensors& inputs) {
        ++calls;
        return Tensors{inputs[0].sum()};
      },
      /*warm_up=*/1);
  for (int i = 0; i < 3; ++i) step({number(1)});
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(on_cpu(step({at::ones({7}, sim_floats())})[0]).item<float>(), 7);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(on_cpu(step({number(3)})[0]).item<float>(), 6);
  EXPECT_EQ(calls, 3);
}

TEST_F(SimCapturedStep, IsNotCapturedWhereTheHostReadsANumber) {
  ::testing::internal::CaptureStderr();
  const auto counts = at::zeros({2}, sim_floats());
  CapturedStep step(
      kSim,
      [&](const Tensors& inputs) {
        if (inputs[0][0].item<float>() > 0) counts.add_(1);
        return Tensors{counts};
      },
      /*warm_up=*/1);
  for (int i = 0; i < 4; ++i) step({number(1)});
  EXPECT_EQ(on_cpu(counts)[0].item<float>(), 4);
  EXPECT_EQ(step.replays(), 0);
  EXPECT_THAT(step.refusal(), HasSubstr("item()"));
  const auto lines = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("warning: steps are not captured: "));
  EXPECT_EQ(std::ranges::count(lines, '\n'), 1) << lines;
}

TEST_F(SimCapturedStep, GivesTheFunctionsOwnErrorWhereItFails) {
  CapturedStep step(
      kSim, [](const Tensors& inputs) { return Tensors{inputs[0].view({3})}; }, /*warm_up=*/1);
  EXPECT_THROW(step({number(1)}), c10::Error);
  EXPECT_THROW(step({number(1)}), c10::Error);
  EXPECT_THROW(step({number(1)}), c10::Error);
}

TEST_F(SimCapturedStep, OnTheCpuCallsTheFunction) {
  CapturedStep step(at::kCPU, [](const Tensors& inputs) { return Tensors{inputs[0] + 1}; });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(step({at::full({}, i)})[0].item<int>(), i + 1);
  EXPECT_EQ(step.replays(), 0);
  EXPECT_THROW(CapturedStep(at::kCPU, {}, /*warm_up=*/0), ConfigError);
}

// The step, the optimizer and its parameter, on either device.
struct Training {
  explicit Training(at::Device device, const OptimizerFactory& factory)
      : weight(at::full({4}, 2.0, at::kFloat).to(device).set_requires_grad(true)),
        optimizer(factory.create({{"weight", weight}})) {}

  Tensors step(const Tensors& inputs) {
    weight.mutable_grad().reset();
    other.mutable_grad().reset();
    auto loss = (weight * inputs[0]).square().sum();
    if (other.requires_grad()) loss = loss + (other * inputs[0]).square().sum();
    loss.backward();
    optimizer->step();
    return {loss.detach()};
  }

  at::Tensor weight;
  at::Tensor other = at::zeros({1});  // a parameter that comes later
  std::unique_ptr<Optimizer> optimizer;
};

TEST_F(SimCapturedStep, FollowsTheLearningRateOfEachStep) {
  for (const OptimizerFactory& factory :
       {OptimizerFactory(AdamW{}), OptimizerFactory(SGD{.lr = 0.1, .momentum = 0.9}),
        OptimizerFactory(Adagrad{}), OptimizerFactory(Lion{})}) {
    Training captured(kSim, factory), expected(at::kCPU, factory);
    CapturedStep step(
        kSim, [&](const Tensors& inputs) { return captured.step(inputs); }, /*warm_up=*/1);
    for (int i = 0; i < 8; ++i) {
      for (auto* training : {&captured, &expected}) training->optimizer->groups().front().lr = 0.01 / (1 + i);
      const auto input = at::full({4}, 0.1 * i);
      const auto loss = on_cpu(step({on_sim(input)})[0]);
      EXPECT_TRUE(at::equal(loss, expected.step({input})[0])) << captured.optimizer->name() << i;
    }
    EXPECT_EQ(step.replays(), 7);
    EXPECT_TRUE(at::equal(on_cpu(captured.weight.detach()), expected.weight.detach()));
  }
}

TEST_F(SimCapturedStep, IsRecordedAnewWhenASettingChangesAndNotAnyMoreWhenAllStepsDiffer) {
  const OptimizerFactory factory = AdamW{};
  Training captured(kSim, factory), expected(at::kCPU, factory);
  int calls = 0;
  CapturedStep step(
      kSim,
      [&](const Tensors& inputs) {
        ++calls;
        return captured.step(inputs);
      },
      /*warm_up=*/1);
  const auto run = [&](double beta) {
    for (auto* training : {&captured, &expected})
      training->optimizer->groups().front().betas = {{beta, 0.99}};
    const auto input = at::ones({4});
    EXPECT_TRUE(at::equal(on_cpu(step({on_sim(input)})[0]), expected.step({input})[0]));
  };
  for (int i = 0; i < 4; ++i) run(0.9);
  EXPECT_EQ(calls, 2);
  for (int i = 0; i < 4; ++i) run(0.8);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(step.replays(), 6);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 10; ++i) run(0.7 - 0.01 * i);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("change from step to step"));
  EXPECT_THAT(step.refusal(), HasSubstr("betas"));
}

TEST_F(SimCapturedStep, DoesOncePerStepWhatTheHostHasToDo) {
  int done = 0;
  CapturedStep step(
      kSim,
      [&](const Tensors& inputs) {
        detail::once_per_step([&] { ++done; });
        return inputs;
      },
      /*warm_up=*/1);
  for (int i = 1; i <= 4; ++i) {
    step({number(i)});
    EXPECT_EQ(done, i);
  }
}

TEST_F(SimCapturedStep, IsRecordedAnewAfterWhatItRefersToHasChanged) {
  const OptimizerFactory factory = SGD{.lr = 0.1, .momentum = 0.9};
  Training captured(kSim, factory), expected(at::kCPU, factory);
  int calls = 0;
  CapturedStep step(
      kSim,
      [&](const Tensors& inputs) {
        ++calls;
        return captured.step(inputs);
      },
      /*warm_up=*/1);
  const auto run = [&](int times) {
    for (int i = 0; i < times; ++i)
      EXPECT_TRUE(at::equal(on_cpu(step({on_sim(at::ones({4}))})[0]), expected.step({at::ones({4})})[0]));
  };
  run(4);
  EXPECT_EQ(calls, 2);
  const auto saved = state_of(*captured.optimizer);
  for (auto* training : {&captured, &expected}) load_state(*training->optimizer, saved);
  run(3);
  EXPECT_EQ(calls, 4);  // as it is, and recorded
  for (auto* training : {&captured, &expected}) {
    training->other = at::full({4}, 1.0).to(training->weight.device()).set_requires_grad(true);
    training->optimizer->add_param_group({{"other", training->other}}, 0.05);
  }
  run(5);  // its state begins in a step that is not recorded
  EXPECT_EQ(calls, 6);
  EXPECT_TRUE(at::equal(on_cpu(captured.other.detach()), expected.other.detach()));
}

TEST_F(SimCapturedStep, LeavesNoGradientsWhereItIsGivenUp) {
  // The step clears what it has used at its end, for the next one to begin with.
  const auto train = [](Training& training, const at::Tensor& input) {
    (training.weight * input).square().sum().backward();
    training.optimizer->step();
    const auto sum = training.weight.detach().sum().item<float>();
    training.weight.mutable_grad().reset();
    return sum;
  };
  const OptimizerFactory factory = SGD{.lr = 0.01};
  Training captured(kSim, factory), expected(at::kCPU, factory);
  float found = 0;
  CapturedStep step(
      kSim,
      [&](const Tensors& inputs) {
        found = train(captured, inputs[0]);
        return inputs;
      },
      /*warm_up=*/1);
  for (int i = 0; i < 4; ++i) {
    step({on_sim(at::ones({4}))});
    EXPECT_EQ(found, train(expected, at::ones({4}))) << i;
  }
  EXPECT_THAT(step.refusal(), HasSubstr("item()"));
}

TEST_F(SimCapturedStep, LetsTheDeviceGoOnWhereTheHostFails) {
  detail::StepRecording recording(kSim);
  std::vector<std::string> done;
  recording.before_replay([&] { done.push_back("check"); });
  recording.post([&] { done.push_back("first"); }, [&] { done.push_back("first given up"); });
  recording.post([] { throw std::runtime_error("lost"); }, [&] { done.push_back("second given up"); });
  recording.post([&] { done.push_back("third"); }, [&] { done.push_back("third given up"); });
  recording.after_replay([&] { done.push_back("end"); });
  recording.begin_replay();
  EXPECT_THROW(recording.end_replay(), std::runtime_error);
  EXPECT_EQ(done, (std::vector<std::string>{"check", "first", "second given up", "third given up"}));
}

TEST_F(SimCapturedStep, TellsWhoKeepsResultsThatTheyAreOutOfDate) {
  int forgotten = 0, given_up = 0;
  const detail::RecordingListener listener([&](bool is_given_up) { ++(is_given_up ? given_up : forgotten); });
  CapturedStep step(
      kSim, [](const Tensors& inputs) { return inputs; }, /*warm_up=*/1);
  for (int i = 0; i < 3; ++i) step({number(i)});
  EXPECT_EQ(forgotten, 6);  // before and after a call and a recording, and after two replays
  CapturedStep refused(
      kSim,
      [](const Tensors& inputs) {
        inputs[0].sum().item();
        return inputs;
      },
      /*warm_up=*/1);
  for (int i = 0; i < 3; ++i) refused({number(i)});
  EXPECT_EQ(given_up, 1);
}

TEST_F(SimCapturedStep, AdaptsALossScaleThatWasPendingFirst) {
  std::vector<StateTree> states;
  for (const bool cuda_graphs : {true, false}) {
    Fabric fabric(
        {.accelerator = "sim", .precision = Fp16Mixed{}, .devices = Devices{0}, .cuda_graphs = cuda_graphs});
    fabric.seed_everything(1);
    auto [model, optimizer] = fabric.setup(torch::nn::Linear(4, 2), SGD{.lr = 0.1});
    const auto train = [&](const Example& batch) {
      optimizer->zero_grad();
      at::Tensor loss;
      {
        const auto scope = fabric.autocast();
        loss = model->forward(batch.data).to(at::kFloat).square().sum();
      }
      fabric.backward(loss);
      optimizer->step();
      return loss.detach();
    };
    auto step = fabric.capture<Example>(train, /*warm_up=*/1);
    const Example batch{on_sim(at::ones({3, 4})), on_sim(at::zeros({3, 2}))};
    for (int i = 0; i < 6; ++i) {
      if (i == 2 || i == 4) train(batch);  // as it is: its scale is adapted by the next one
      step(batch);
    }
    EXPECT_EQ(step.refusal(), "");
    EXPECT_EQ(step.replays(), cuda_graphs ? 5 : 0);
    EXPECT_EQ(fabric.precision().grad_scaler()->steps(), 8);
    states.push_back(fabric.precision().state());
    states.back().set("weight", on_cpu(model->weight.detach()));
  }
  EXPECT_TRUE(states[0] == states[1]);
}

// As somebody may write one.
class OwnOptimizer final : public Optimizer {
 public:
  explicit OwnOptimizer(std::vector<NamedParameter> parameters)
      : Optimizer(std::move(parameters), {{.pattern = "", .lr = 0.1, .initial_lr = 0.1}}) {}
  void step(double grad_scale) override {
    const at::NoGradGuard no_grad;
    for (const auto& parameter : parameters())
      at::Tensor(parameter.tensor).sub_(parameter.tensor.grad() * (groups().front().lr * grad_scale));
  }
  std::string_view name() const override { return "OwnOptimizer"; }
  std::vector<OptimizerState> state() override { return {}; }
};

struct Hidden {
  at::Tensor data;
};

TEST_F(SimCapturedStep, OfFabricRefusesWhatItWouldRepeatWrongly) {
  Fabric fabric({.accelerator = "sim", .devices = Devices{0}, .cuda_graphs = true});
  auto [model, optimizer] = fabric.setup(torch::nn::Linear(4, 2), [](std::vector<NamedParameter> parameters) {
    return std::make_unique<OwnOptimizer>(std::move(parameters));
  });
  auto step = fabric.capture<at::Tensor>(
      [&, calls = 0](const at::Tensor& input) mutable {
        ++calls;
        optimizer->zero_grad();
        auto loss = model->forward(input).square().sum();
        fabric.backward(loss);
        optimizer->step();
        return loss.detach();
      },
      /*warm_up=*/1);
  for (int i = 0; i < 3; ++i) step(on_sim(at::ones({3, 4})));
  EXPECT_EQ(step.replays(), 0);
  EXPECT_THAT(step.refusal(), HasSubstr("OwnOptimizer"));
  auto hidden = fabric.capture<Hidden>([](const Hidden& batch) { return batch.data; });
  EXPECT_THROW(hidden({on_sim(at::ones({2}))}), ConfigError);
}

TEST_F(SimCapturedStep, OfFabricTakesBatchesAndSaysWhenItIsOff) {
  for (const bool cuda_graphs : {true, false}) {
    Fabric fabric({.accelerator = "sim", .devices = Devices{0}, .cuda_graphs = cuda_graphs});
    fabric.seed_everything(1);
    auto [model, optimizer] = fabric.setup(torch::nn::Linear(4, 2), SGD{.lr = 0.1});
    auto step = fabric.capture<Example>([&](const Example& batch) {
      optimizer->zero_grad();
      auto loss = torch::mse_loss(model->forward(batch.data), batch.target);
      fabric.backward(loss);
      optimizer->step();
      return loss.detach();
    });
    double first = 0, last = 0;
    for (int i = 0; i < 8; ++i) {
      last = step(fabric.to_device(Example{at::ones({3, 4}), at::zeros({3, 2})})).item<double>();
      if (i == 0) first = last;
    }
    EXPECT_LT(last, first / 2);
    EXPECT_EQ(step.replays(), cuda_graphs ? 5 : 0);
    EXPECT_EQ(step.refusal(), "");
  }
}

}  // namespace
}  // namespace lockstep::sim
