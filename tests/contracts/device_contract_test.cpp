// What holds on every kind of device: training has the bits of the CPU, or its numbers where the device has
// kernels of its own. Rows are those of the library's own tables where it has one, so that a new strategy,
// precision or optimizer is a row of these suites at once.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/lockstep.h>
#include <lockstep/torch.h>

#include "strategy/deepspeed_optimizer.h"
#include "support/contract_device.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kSteps = 6;

struct ContractNetImpl : nn::Module {
  ContractNetImpl() : body(nn::Linear(8, 16), nn::ReLU(), nn::Linear(16, 16), nn::ReLU()), head(16, 2) {
    register_module("body", body);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& input) {
    const auto hidden = checkpoints
                            ? checkpoint([this](const at::Tensor& x) { return body->forward(x); }, input)
                            : body->forward(input);
    return head->forward(hidden).to(at::kFloat);
  }
  nn::Sequential body;
  nn::Linear head;
  bool checkpoints = false;
};
TORCH_MODULE(ContractNet);

// What of a training a test chooses.
struct Chosen {
  FabricOptions fabric = {};
  OptimizerFactory optimizer = AdamW{.lr = 1e-2};
  std::function<void(ContractNet&)> change = [](ContractNet&) {};
  std::filesystem::path resumes_from = {}, saves_to = {};
  std::int64_t first = 0, last = kSteps;  // steps
};

struct Trained {
  at::Tensor losses;
  std::map<std::string, at::Tensor> weights;
};

at::Tensor on_host(const at::Tensor& tensor) { return tensor.detach().to(at::kCPU).clone(); }

Trained train(const std::string& accelerator, const Chosen& chosen) {
  at::set_num_threads(1);
  auto options = chosen.fabric;
  options.accelerator = accelerator;
  options.devices = 1;
  Fabric fabric(options);
  fabric.launch();
  fabric.seed_everything(5);
  ContractNet net;
  chosen.change(net);
  auto [model, optimizer] = fabric.setup(net, chosen.optimizer);
  if (!chosen.resumes_from.empty())
    fabric.load(chosen.resumes_from, {{"model", model}, {"optimizer", optimizer}});
  const auto inputs = at::randn({kSteps, 4, 8}), targets = at::randn({4, 2});
  std::vector<at::Tensor> losses;
  for (auto step = chosen.first; step < chosen.last; ++step) {
    const auto batch = fabric.to_device(Example{inputs[step], targets});
    optimizer->zero_grad();
    at::Tensor loss;
    {
      const auto scope = fabric.autocast();
      loss = torch::mse_loss(model->forward(fabric.precision().convert_input(batch.data)), batch.target);
    }
    fabric.backward(loss);
    optimizer->step();
    losses.push_back(on_host(loss));
  }
  if (!chosen.saves_to.empty()) fabric.save(chosen.saves_to, {{"model", model}, {"optimizer", optimizer}});
  Trained trained{.losses = at::stack(losses), .weights = {}};
  for (const auto& [name, tensor] : fabric.strategy().module_state(*model))
    trained.weights.emplace(name, on_host(tensor));
  return trained;
}

// A tensor may differ by this share of its norm; by nothing means that bits are the same.
void expect_alike(const Trained& found, const Trained& expected, double difference = 0) {
  const auto are_alike = [&](const at::Tensor& a, const at::Tensor& b) {
    if (difference == 0) return at::equal(a, b);
    const auto wide = b.to(at::kDouble);
    return (a.to(at::kDouble) - wide).norm().item<double>() <= difference * wide.norm().item<double>();
  };
  EXPECT_TRUE(are_alike(found.losses, expected.losses)) << found.losses << expected.losses;
  ASSERT_EQ(found.weights.size(), expected.weights.size());
  for (const auto& [name, tensor] : expected.weights)
    EXPECT_TRUE(are_alike(found.weights.at(name), tensor)) << name;
}

std::string word_of(const ::testing::TestParamInfo<std::string>& test) {
  std::string word;
  for (const char letter : test.param)
    word += std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
  return word;
}

template <class Table>
std::vector<std::string> available(const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table)
    if (row.unavailable.empty()) names.emplace_back(row.name);
  return names;
}

template <class Table>
auto value_of(const Table& table, const std::string& name) {
  return std::ranges::find(table, std::string_view(name), [](const auto& row) { return row.name; })->value;
}

class DeviceContract : public ::testing::TestWithParam<std::string> {
 protected:
  ~DeviceContract() override {
    at::ones({1})
        .requires_grad_()
        .sum()
        .backward();  // ends what lasts until the next one, such as offloading
    EXPECT_EQ(testing::end_on_contract_device(), "");
  }

  static void compare(const Chosen& chosen, double difference = float_difference()) {
    const auto expected = train("cpu", chosen);
    expect_alike(train(testing::contract_accelerator(), chosen), expected, difference);
  }
  static double float_difference() { return testing::contract_difference(/*is_narrow=*/false); }

  test::TemporaryFolder folder_;
};

// Those of XLA train on its devices alone.
std::vector<std::string> strategies_of_any_device() {
  auto names = available(strategy_choices());
  std::erase_if(names, [](const std::string& name) { return name.find("xla") != name.npos; });
  return names;
}

class Strategies : public DeviceContract {};
INSTANTIATE_TEST_SUITE_P(DeviceContract, Strategies, ::testing::ValuesIn(strategies_of_any_device()),
                         word_of);

TEST_P(Strategies, TrainAsOnTheCpu) {
  Chosen chosen;
  chosen.fabric.strategy = value_of(strategy_choices(), GetParam());
  if (auto* const deepspeed = std::get_if<DeepSpeed>(&chosen.fabric.strategy))
    deepspeed->nvme_path = folder_.path();
  compare(chosen);
}

class Precisions : public DeviceContract {};
INSTANTIATE_TEST_SUITE_P(DeviceContract, Precisions, ::testing::ValuesIn(available(precision_choices())),
                         word_of);

TEST_P(Precisions, TrainAsOnTheCpu) {
  Chosen chosen;
  chosen.fabric.precision = value_of(precision_choices(), GetParam());
  compare(chosen, testing::contract_difference(/*is_narrow=*/GetParam().find("16") != std::string::npos));
}

class OptimizersOfTheTable : public DeviceContract {};
INSTANTIATE_TEST_SUITE_P(DeviceContract, OptimizersOfTheTable,
                         ::testing::ValuesIn(available(deepspeed::optimizer_choices())), word_of);

// Muon multiplies its learning rate in another order.
TEST_P(OptimizersOfTheTable, StepAsOnTheCpu) {
  DeepSpeedConfig config;
  config.optimizer = value_of(deepspeed::optimizer_choices(), GetParam());
  std::visit(
      [](auto& section) {
        if constexpr (requires { section.lr; }) section.lr.is_auto = false;
      },
      config.optimizer);
  if (std::holds_alternative<deepspeed::NoOptimizer>(config.optimizer)) return;
  Chosen chosen;
  chosen.optimizer = detail::optimizer_of(config);
  compare(chosen, std::holds_alternative<deepspeed::Muon>(config.optimizer) ? 1e-3 : float_difference());
}

class Activations : public DeviceContract {};
INSTANTIATE_TEST_SUITE_P(DeviceContract, Activations,
                         ::testing::Values("checkpoint", "policy", "offload", "offload_to_disk"), word_of);

TEST_P(Activations, GiveTheGradientsOfTheCpu) {
  const auto plain = train("cpu", {});
  Chosen chosen;
  chosen.change = [&](ContractNet& net) {
    if (GetParam() == "checkpoint") net->checkpoints = true;
    if (GetParam() == "policy") apply_activation_checkpointing(*net, types<nn::SequentialImpl>());
    // The device is in use by now.
    if (GetParam() == "offload") offload_activations(*net, {.directory = {}, .min_bytes = 1});
    if (GetParam() == "offload_to_disk")
      offload_activations(*net, {.directory = folder_.path(), .min_bytes = 1});
  };
  expect_alike(train(testing::contract_accelerator(), chosen), plain, float_difference());
}

class Loaders : public DeviceContract {};
INSTANTIATE_TEST_SUITE_P(DeviceContract, Loaders,
                         ::testing::Values("plain", "workers", "pinned", "left_on_the_host"), word_of);

TEST_P(Loaders, GiveTheBatchesOfTheCpu) {
  const auto rows = at::arange(21.0).view({7, 3});
  Fabric fabric({.accelerator = testing::contract_accelerator(), .devices = 1});
  fabric.launch();
  const bool moves = GetParam() != "left_on_the_host";
  auto batches = fabric.setup_loader(
      loader(tensor_dataset(rows, rows.sum(1)), {.batch_size = 2,
                                                 .num_workers = GetParam() == "workers" ? 2 : 0,
                                                 .pin_memory = GetParam() == "pinned"}),
      {.move_to_device = moves});
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<at::Tensor> inputs, targets;
    for (const auto& batch : batches) {
      EXPECT_EQ(batch.data.device().type(), moves ? testing::contract_device() : at::kCPU);
      inputs.push_back(batch.data);
      targets.push_back(batch.target);
    }
    EXPECT_TRUE(at::equal(on_host(at::cat(inputs)), rows.to(inputs.front().scalar_type())));
    EXPECT_TRUE(at::equal(on_host(at::cat(targets)), rows.sum(1).to(targets.front().scalar_type())));
  }
}

class Checkpoints : public DeviceContract {};
INSTANTIATE_TEST_SUITE_P(DeviceContract, Checkpoints,
                         ::testing::Values("of_its_own", "of_the_cpu", "for_the_cpu", "of_its_own_shards"),
                         word_of);

TEST_P(Checkpoints, ResumeWithTheBitsOfAnUndisturbedRun) {
  const auto device = testing::contract_accelerator();
  Chosen first, second, whole;
  if (GetParam() == "of_its_own_shards")
    first.fabric.strategy = second.fabric.strategy = Fsdp{.state_dict_type = StateDictType::kSharded};
  first.last = second.first = whole.first = kSteps / 2;
  first.saves_to = second.resumes_from = folder_ / "saved.ckpt";
  whole.first = 0;
  const auto expected = train("cpu", whole);
  train(GetParam() == "of_the_cpu" ? "cpu" : device, first);
  auto resumed = train(GetParam() == "for_the_cpu" ? "cpu" : device, second);
  resumed.losses = at::cat({expected.losses.narrow(0, 0, kSteps / 2), resumed.losses});
  expect_alike(resumed, expected, float_difference());
}

}  // namespace
}  // namespace lockstep
