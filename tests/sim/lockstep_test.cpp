// lockstep's own parts on simulated devices, within one rank.
#include <lockstep/base/error.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/device/scalar.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/fabric/fabric.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/parallel/activations.h>
#include <lockstep/precision/forward_scope.h>
#include <lockstep/precision/grad_scaler.h>
#include <lockstep/state/module_state.h>

#include "device/batch_transfer.h"
#include "sim/installed.h"
#include "sim/sim_accelerator.h"

namespace lockstep::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SimLockstep : public SimDeviceTest {};

std::vector<NamedParameter> parameters_on(at::Device device, at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(5);
  std::vector<NamedParameter> parameters;
  for (const auto size : {3, 700}) {
    auto tensor = torch::randn({size}).to(device, dtype).set_requires_grad(true);
    tensor.mutable_grad() = torch::randn({size}).to(device, dtype);
    parameters.push_back({"p" + std::to_string(size), tensor});
  }
  return parameters;
}

at::Tensor values(const std::vector<NamedParameter>& parameters) {
  std::vector<at::Tensor> all;
  for (const auto& parameter : parameters) all.push_back(on_cpu(parameter.tensor.detach()));
  return at::cat(all);
}

TEST_F(SimLockstep, StepsOfOptimizersHaveTheBitsOfTheCpuAndItsState) {
  const std::vector<OptimizerFactory> factories{SGD{.lr = 0.1, .momentum = 0.9, .nesterov = true},
                                                SGD{.lr = 0.1},
                                                Adam{.weight_decay = 0.1},
                                                AdamW{.maximize = true},
                                                Adagrad{.lr_decay = 0.1},
                                                Lion{.weight_decay = 0.1},
                                                Lamb{.weight_decay = 0.1},
                                                Lamb{.bias_correction = false, .eps_inside_sqrt = true}};
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const auto& factory : factories) {
      const auto expected = parameters_on(at::kCPU, dtype), got = parameters_on(kSim, dtype);
      const auto on_host = factory.create(expected), on_device = factory.create(got);
      take_host_syncs();
      for (int step = 0; step < 3; ++step) {
        on_host->step(0.5);
        on_device->step(0.5);
      }
      EXPECT_THAT(take_host_syncs(), IsEmpty()) << on_host->name();
      EXPECT_TRUE(at::equal(values(got), values(expected))) << on_host->name() << " " << c10::toString(dtype);
      // States go from one to the other.
      const auto again = parameters_on(at::kCPU, dtype);
      const auto resumed = factory.create(again);
      load_state(*resumed, state_of(*on_device));
      for (std::size_t i = 0; i < again.size(); ++i) {
        const torch::NoGradGuard no_grad;
        again[i].tensor.copy_(on_cpu(got[i].tensor));
      }
      resumed->step();
      on_host->step();
      EXPECT_TRUE(at::equal(values(again), values(expected))) << on_host->name();
    }
  }
}

// A learning rate that is multiplied in another order: values are those of the CPU within their rounding.
TEST_F(SimLockstep, StepsOfMuonAreThoseOfTheCpu) {
  const auto parameters_of = [](at::Device device) {
    torch::manual_seed(5);
    std::vector<NamedParameter> parameters;
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{6, 4}, {3, 8}, {5}})
      parameters.push_back(
          {"p" + std::to_string(parameters.size()), torch::randn(shape).to(device).set_requires_grad(true)});
    return parameters;
  };
  for (const auto adjust : {AdjustLr::kOriginal, AdjustLr::kMatchRmsAdamw}) {
    const OptimizerFactory factory = Muon{.nesterov = adjust == AdjustLr::kOriginal, .adjust_lr_fn = adjust};
    const auto expected = parameters_of(at::kCPU), got = parameters_of(kSim);
    const auto on_host = factory.create(expected), on_device = factory.create(got);
    for (int step = 0; step < 4; ++step) {
      for (std::size_t i = 0; i < got.size(); ++i) {
        expected[i].tensor.mutable_grad() = torch::randn(expected[i].tensor.sizes());
        got[i].tensor.mutable_grad() = on_sim(expected[i].tensor.grad());
      }
      take_host_syncs();
      if (step == 2) {
        EXPECT_TRUE(on_device->leave_out_next_step_if(at::ones({}, sim_floats())));
      } else {
        on_host->step(0.5);
      }
      on_device->step(0.5);
      EXPECT_THAT(take_host_syncs(), IsEmpty());
    }
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(at::allclose(on_cpu(got[i].tensor.detach()), expected[i].tensor.detach(), 1e-5, 1e-6)) << i;
    const auto states = on_host->state(), device_states = on_device->state();
    ASSERT_EQ(states.size(), device_states.size());
    for (std::size_t i = 0; i < states.size(); ++i)
      EXPECT_TRUE(
          at::allclose(on_cpu(device_states[i].tensor).to(states[i].tensor.scalar_type()), states[i].tensor))
          << states[i].kind;
  }
}

TEST_F(SimLockstep, OptimizersRefuseParametersOfTwoDevices) {
  auto mixed = parameters_on(kSim);
  mixed[1].tensor = mixed[1].tensor.detach().to(at::kCPU).set_requires_grad(true);
  try {
    OptimizerFactory(AdamW{}).create(mixed);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("p700"));
    EXPECT_THAT(error.what(), HasSubstr("all parameters on one device, sim:0"));
  }
}

TEST_F(SimLockstep, NormsAndClippingHaveTheBitsOfTheCpu) {
  const auto expected = parameters_on(at::kCPU), got = parameters_on(kSim);
  const auto tensors = [](const std::vector<NamedParameter>& parameters) {
    return std::vector<at::Tensor>{parameters[0].tensor, parameters[1].tensor};
  };
  const auto norm = grad_norm(tensors(expected));
  EXPECT_EQ(grad_norm(tensors(got)), norm);
  EXPECT_EQ(clip_grad_norm(tensors(expected), 1.0), norm);
  take_host_syncs();
  const auto late = clip_gradients_lazily(tensors(got), {.value = 1.0});
  EXPECT_THAT(take_host_syncs(), IsEmpty());
  EXPECT_TRUE(late.is_on_device());
  EXPECT_EQ(late, norm);
  EXPECT_FALSE(late.is_on_device());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(at::equal(on_cpu(got[i].tensor.grad()), expected[i].tensor.grad()));
}

TEST_F(SimLockstep, ScalarsKeepWhatTheyWereMadeOf) {
  const auto tensor = at::full({1}, 2.5, sim_floats());
  const Scalar scalar = tensor;
  tensor.fill_(7);
  EXPECT_TRUE(scalar.is_on_device());
  EXPECT_EQ(scalar, 2.5);
}

TEST_F(SimLockstep, ScalarsOfALastUseAreNumbersOfFloat64) {
  const auto scalar = Scalar::of_last_use(at::full({1}, 0.1, sim_floats()));
  EXPECT_EQ(scalar.tensor().dim(), 0);
  EXPECT_EQ(scalar.tensor().scalar_type(), at::kDouble);
  EXPECT_EQ(scalar, 0.1F);
}

TEST_F(SimLockstep, MemoryOfADeviceIsCounted) {
  const auto before = memory_of(kSim).allocated;
  reset_peak_memory(kSim);
  { const auto tensor = at::ones({1024}, sim_floats()); }
  EXPECT_EQ(memory_of(kSim).allocated, before);
  EXPECT_GE(memory_of(kSim).peak_allocated, before + 4096);
  EXPECT_GE(memory_of(kSim).reserved, memory_of(kSim).peak_allocated);
}

// Of a batch that somebody keeps the memory stays as it is; of others it is used again.
TEST_F(SimLockstep, BatchesComeOnAStreamOfTheirOwnIntoMemoryThatIsUsedAgain) {
  const auto inputs = at::randn({40, 64, 16}), targets = at::randn({40, 64});
  const auto sums = at::zeros({40}, sim_floats());
  at::Tensor kept;
  const auto step = [&](std::int64_t i) {
    const auto input = detail::batch_to_device(inputs[i], kSim);
    const auto target = detail::batch_to_device(targets[i], kSim);
    if (i == 7) kept = input;
    sums[i].copy_((input.mul(input).sum(1) * target).sum());
  };
  for (std::int64_t i = 0; i < 12; ++i) step(i);
  take_host_syncs();
  reset_counters();
  for (std::int64_t i = 12; i < 40; ++i) step(i);
  EXPECT_THAT(take_host_syncs(), IsEmpty());
  EXPECT_EQ(counters().segments, 0);
  EXPECT_TRUE(at::equal(on_cpu(kept), inputs[7]));
  const auto expected = (inputs.mul(inputs).sum(2) * targets).sum(1);
  EXPECT_TRUE(at::allclose(on_cpu(sums), expected));
}

TEST_F(SimLockstep, BatchesOfOtherShapesAndTypesReachTheDevice) {
  for (int round = 0; round < 40; ++round) {  // long enough for memory to be given back
    for (const auto& tensor : {at::arange(7), at::randn({3, 5}).t(), at::randn({4, 6}).slice(1, 0, 6, 2),
                               at::zeros({0, 3}), at::ones({2}, at::kHalf).pin_memory()}) {
      const auto moved = detail::batch_to_device(tensor, kSim);
      EXPECT_EQ(moved.device(), kSim);
      EXPECT_TRUE(at::equal(on_cpu(moved), tensor));
    }
    if (round % 8 == 0) (void)detail::batch_to_device(at::zeros({1000 * (round + 1)}), kSim);
  }
  EXPECT_FALSE(detail::batch_to_device({}, kSim).defined());
}

struct Counting : torch::nn::Module {
  Counting() {
    register_parameter("count", at::ones({1}, at::kLong), /*requires_grad=*/false);
    register_parameter("weight", at::ones({4}));
    register_buffer("mean", at::ones({2}));
  }
};

TEST_F(SimLockstep, WhatIsNotShardedGoesToTheDeviceToo) {
  Fabric fabric({.accelerator = "sim", .strategy = Fsdp{}, .devices = Devices{0}});
  const auto module = fabric.setup_module(std::make_shared<Counting>());
  for (const auto& item : module->named_parameters()) EXPECT_EQ(item.value().device(), kSim) << item.key();
  for (const auto& item : module->named_buffers()) EXPECT_EQ(item.value().device(), kSim) << item.key();
}

// A step under a loss scale, for which gradients may overflow.
struct ScaledTraining {
  explicit ScaledTraining(at::Device device,
                          const GradScalerOptions& options = {.init_scale = 1024, .growth_interval = 2})
      : scaler(options),
        weight(at::full({3}, 1.0, at::kFloat).to(device).set_requires_grad(true)),
        optimizer(OptimizerFactory(AdamW{.lr = 0.1}).create({{"weight", weight}})) {}

  Scalar step(double input) {
    optimizer->zero_grad();
    scaler.scale((weight * input).sum()).backward();
    const auto taken = scaler.step_lazily(*optimizer, [&] { optimizer->step(); });
    scaler.update();
    return taken;
  }

  GradScaler scaler;
  at::Tensor weight;
  std::unique_ptr<Optimizer> optimizer;
};

TEST_F(SimLockstep, AStepWhoseGradientsOverflowIsLeftOutByTheDevice) {
  ScaledTraining expected(at::kCPU), got(kSim);
  const double inputs[] = {1, 3, 1e36, 2, 1e36, 1e36, 5, 0.5};
  std::vector<Scalar> taken;
  take_host_syncs();
  for (const double input : inputs) taken.push_back(got.step(input));
  EXPECT_THAT(take_host_syncs(), IsEmpty());
  for (std::size_t i = 0; i < taken.size(); ++i) {
    EXPECT_TRUE(taken[i].is_on_device());
    EXPECT_EQ(bool(taken[i]), inputs[i] < 10) << i;
    EXPECT_EQ(bool(expected.step(inputs[i])), inputs[i] < 10) << i;
  }
  EXPECT_TRUE(at::equal(on_cpu(got.weight.detach()), expected.weight.detach()));
  EXPECT_EQ(got.scaler.get_scale(), expected.scaler.get_scale());
  EXPECT_EQ(got.scaler.skipped_steps(), 3);
  EXPECT_EQ(got.scaler.steps(), 8);
  EXPECT_EQ(got.scaler.skipped_in_a_row(), 0);
  EXPECT_TRUE(got.scaler.state() == expected.scaler.state());
  // A state of one kind of device goes on on the other.
  ScaledTraining resumed(at::kCPU);
  resumed.scaler.load_state(got.scaler.state());
  EXPECT_EQ(resumed.scaler.get_scale(), expected.scaler.get_scale());
}

TEST_F(SimLockstep, DeepSpeedsRuleForTheScaleIsFollowedByTheDevice) {
  const double inputs[] = {3e38, 1, 3e38, 3e38, 2, 3, 1, 2, 3e38, 1, 3e38, 3e38, 1, 1, 1, 3e38, 5};
  for (const bool refills : {false, true}) {
    for (const std::int64_t delay : {0, 1}) {
      const GradScalerOptions options{.init_scale = 1024,
                                      .growth_factor = 1.7,
                                      .backoff_factor = 0.3,
                                      .growth_interval = 3,
                                      .hysteresis = 2,
                                      .consecutive_hysteresis = refills,
                                      .growth_delay = delay,
                                      .min_scale = 100,
                                      .fails_at_min_scale = false};
      ScaledTraining expected(at::kCPU, options), got(kSim, options);
      for (const double input : inputs) {
        take_host_syncs();
        got.step(input);
        EXPECT_THAT(take_host_syncs(), IsEmpty());
        expected.step(input);
        EXPECT_TRUE(got.scaler.state() == expected.scaler.state());
      }
      EXPECT_TRUE(at::equal(on_cpu(got.weight.detach()), expected.weight.detach()));
      EXPECT_EQ(got.scaler.skipped_steps(), expected.scaler.skipped_steps());
      ScaledTraining resumed(kSim, options);
      resumed.scaler.load_state(expected.scaler.state());
      EXPECT_TRUE(resumed.scaler.state() == expected.scaler.state());
    }
  }
}

// The host learns of it when it looks; until then the device takes no step.
TEST_F(SimLockstep, AnOverflowAtTheLeastScaleEndsStepsOnTheDevice) {
  const GradScalerOptions options{.init_scale = 4, .min_scale = 2};
  ScaledTraining expected(at::kCPU, options), got(kSim, options);
  for (const double input : {3e38, 1.0}) {
    expected.step(input);
    got.step(input);
  }
  EXPECT_EQ(got.scaler.skipped_steps(), 1);
  EXPECT_THROW(expected.step(3e38), Error);
  take_host_syncs();
  got.step(3e38);
  got.step(1);
  got.step(1);
  EXPECT_THAT(take_host_syncs(), IsEmpty());
  EXPECT_TRUE(at::equal(on_cpu(got.weight.detach()), expected.weight.detach()));
  try {
    (void)got.scaler.skipped_steps();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("overflowed in step 3, and the scale is 2.0"));
  }
  EXPECT_EQ(got.scaler.skipped_steps(), 4);  // the error was told
}

TEST_F(SimLockstep, AutocastIsThatOfTheDeviceInUse) {
  const auto weight = at::ones({4, 4}, sim_floats());
  const ForwardScope scope(at::kBFloat16);
  EXPECT_EQ(at::mm(weight, weight).scalar_type(), at::kBFloat16);
}

TEST_F(SimLockstep, RandomStatesHoldTheDevicesNumbers) {
  const auto state = random_state(kSim);
  const auto first = on_cpu(at::rand({4}, sim_floats()));
  load_random_state(state, kSim);
  EXPECT_TRUE(at::equal(on_cpu(at::rand({4}, sim_floats())), first));
  load_random_state(random_state(), kSim);  // of a run on CPUs
}

TEST_F(SimLockstep, CheckpointedDropoutDrawsTheSameNumbersAgain) {
  torch::nn::Linear layer(16, 16);
  layer->to(kSim);
  const auto run = [&](const at::Tensor& x) { return at::dropout(layer->forward(x), 0.5, true).relu(); };
  const auto gradient = [&](bool is_checkpointed) {
    layer->zero_grad();
    auto generator = generator_of(kSim);
    generator.set_current_seed(3);
    const auto input = at::ones({8, 16}, sim_floats()).set_requires_grad(true);
    const auto output = is_checkpointed ? checkpoint(run, input) : run(input);
    output.sum().backward();
    return on_cpu(layer->weight.grad());
  };
  EXPECT_TRUE(at::equal(gradient(true), gradient(false)));
}

TEST_F(SimLockstep, ACollectiveTakesTensorsOfOneDevice) {
  const Communicator alone;
  const auto tensor = at::ones({3}, sim_floats());
  alone.all_reduce(tensor);
  const auto gathered = at::empty({3}, sim_floats());
  alone.all_gather(gathered, tensor);
  EXPECT_TRUE(at::equal(on_cpu(gathered), at::ones({3})));
  try {
    alone.all_gather(at::empty({3}), tensor);
    FAIL();
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("two devices"));
  }
}

TEST_F(SimLockstep, AModuleOfAnotherDeviceThanItsRanksIsRefused) {
  Fabric fabric({.accelerator = "sim", .devices = Devices{0}});
  torch::nn::Linear layer(2, 2);
  layer->to(at::Device(kDeviceType, 1));
  try {
    fabric.setup_module(layer);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("parameter weight"));
    EXPECT_THAT(error.what(), HasSubstr("got sim:1"));
  }
  torch::nn::Linear other(2, 2);
  fabric.setup_module(other);
  EXPECT_EQ(other->weight.device(), kSim);
  EXPECT_EQ(fabric.device(), kSim);
}

}  // namespace
}  // namespace lockstep::sim
