// Whatever kind of tensor a module holds is in its checkpoints and comes back from them, or is refused before
// the first step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpoint/interop.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/lockstep.h>
#include <lockstep/testing/fork_ranks.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "train/trainer_rank.h"

namespace lockstep {
namespace {

struct HolderImpl : Module<Example> {
  explicit HolderImpl(const std::map<std::string, at::Tensor>& buffers) {
    for (const auto& [name, buffer] : buffers) register_buffer(name, buffer.clone());
    register_parameter("frozen", torch::polar(torch::ones({3}), torch::arange(3.0F)),
                       /*requires_grad=*/false);
  }
  torch::Tensor training_step(const Example& batch, StepContext&) override {
    ++steps;
    return linear(batch.data).square().mean();
  }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 0.1}}; }

  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 4));
  int steps = 0;
};
TORCH_MODULE(Holder);

std::map<std::string, at::Tensor> buffers_of(int begin) {
  std::map<std::string, at::Tensor> buffers;
  const auto bytes = torch::arange(begin, begin + 32, at::kByte).view({2, 16});
  for (const auto type : {at::kComplexHalf, at::kComplexFloat, at::kComplexDouble, at::kUInt16, at::kUInt32,
                          at::kUInt64, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz,
                          at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu, at::kFloat4_e2m1fn_x2})
    buffers.emplace(at::toString(type), bytes.view(type));
  return buffers;
}

void fit(const StrategyOptions& strategy, int devices, const Holder& model,
         const std::filesystem::path& folder, std::int64_t epochs, const std::string& from = {}) {
  TrainerOptions options{
      .max_epochs = epochs, .strategy = strategy, .devices = devices, .enable_progress_bar = false};
  options.run.run_dir = folder;
  Trainer(options).fit(model, loader(tensor_dataset(torch::ones({8, 4})), {.batch_size = 2}), {}, from);
}

void expect_bytes(const at::Tensor& got, const at::Tensor& expected, const std::string& name) {
  ASSERT_EQ(got.scalar_type(), expected.scalar_type()) << name;
  EXPECT_TRUE(torch::equal(got.view(at::kByte), expected.view(at::kByte))) << name;
}

/// What the checkpoint's files of the model, of which there may be one for each rank, call the type of a
/// tensor.
std::string name_in_files(const std::filesystem::path& checkpoint, const std::string& tensor) {
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    const auto& path = entry.path();
    if (!path.filename().string().starts_with("model") || path.extension() != ".safetensors") continue;
    const safetensors::File file(path);
    if (const auto* found = file.find(tensor)) return std::string(safetensors::dtype_name(found->dtype));
  }
  return "none";
}

/// Trains one module and goes on with another one from its checkpoint.
void there_and_back(const StrategyOptions& strategy, int devices, const std::filesystem::path& folder) {
  const auto wanted = buffers_of(0);
  fit(strategy, devices, Holder(wanted), folder / "first", 1);
  const auto last = folder / "first" / "checkpoints" / "last.ckpt";
  Holder other(buffers_of(100));
  fit(strategy, devices, other, folder / "second", 2, last);
  EXPECT_EQ(other->steps, 4 / devices);
  const auto weights = read_weights(last);
  for (const auto& [name, buffer] : wanted) {
    expect_bytes(other->named_buffers()[name], buffer, name);
    expect_bytes(weights.at(name), buffer, name);
  }
  expect_bytes(weights.at("frozen"), other->named_parameters()["frozen"], "frozen");
  EXPECT_EQ(name_in_files(last, "ComplexFloat"), "C64");
}

StrategyOptions strategy_called(const std::string& name) {
  for (const auto& choice : strategy_choices())
    if (choice.name == name) return choice.value;
  return Auto{};
}

LOCKSTEP_RANK_BODY(store_odd_types)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  const auto split = argument.find(' ');
  there_and_back(strategy_called(argument.substr(0, split)), comm.size(), argument.substr(split + 1));
  return "done";
}

class StoredTypes : public ::testing::TestWithParam<std::string> {};

TEST_P(StoredTypes, ComeBackFromACheckpoint) {
  const test::TemporaryFolder folder;
  for (const auto& rank :
       testing::fork_ranks(2, "store_odd_types", GetParam() + " " + (folder / "runs").string())) {
    EXPECT_EQ(rank.error, "");
    EXPECT_EQ(rank.result, "done");
  }
}

INSTANTIATE_TEST_SUITE_P(Under, StoredTypes, ::testing::Values("ddp", "fsdp", "deepspeed"),
                         [](const auto& strategy) { return strategy.param; });

TEST(StoredTypesOfOneDevice, ComeBackFromACheckpoint) {
  const test::TemporaryFolder folder;
  there_and_back(SingleDevice{}, 1, folder / "runs");
}

TEST(UnstorableTypes, AreRefusedByNameBeforeTheFirstStep) {
  const test::TemporaryFolder folder;
  const auto quantised = at::quantize_per_tensor(torch::ones({2}), 0.1, 0, at::kQInt8);
  for (const auto& [word, buffer] :
       {std::pair("QInt8", quantised), std::pair("Sparse", torch::eye(2).to_sparse())}) {
    Holder model(std::map<std::string, at::Tensor>{{"odd", buffer}});
    const auto refused = [&] { fit(SingleDevice{}, 1, model, folder / "run", 1); };
    test::expect_error<ConfigError>(refused, {"buffer odd", word, "plain member"});
    EXPECT_EQ(model->steps, 0);
    Fabric fabric({.strategy = SingleDevice{}});
    test::expect_error<ConfigError>([&] { fabric.setup(model); }, {"buffer odd", word});
  }
}

}  // namespace
}  // namespace lockstep
