// Modules built within DeferredInit have the values, and leave the generator, of modules built without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>

#include <sstream>

#include <lockstep/parallel/deferred_init.h>
#include <lockstep/torch.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;
using at::Tensor;
using ::testing::HasSubstr;

// All layers of LibTorch's frontend that have parameters.
struct EveryLayer : nn::Module {
  EveryLayer() {
    register_module("linear", nn::Linear(64, 32));
    register_module("bilinear", nn::Bilinear(16, 16, 8));
    register_module("embedding", nn::Embedding(nn::EmbeddingOptions(100, 32).padding_idx(2)));
    register_module("bag", nn::EmbeddingBag(100, 32));
    register_module("conv1d", nn::Conv1d(nn::Conv1dOptions(16, 32, 3).groups(2)));
    register_module("conv2d", nn::Conv2d(16, 16, 3));
    register_module("conv3d", nn::Conv3d(8, 8, 3));
    register_module("transposed", nn::ConvTranspose2d(16, 16, 3));
    register_module("layer_norm", nn::LayerNorm(nn::LayerNormOptions({2048})));
    register_module("group_norm", nn::GroupNorm(4, 2048));
    register_module("batch_norm", nn::BatchNorm2d(2048));
    register_module("instance_norm", nn::InstanceNorm1d(nn::InstanceNorm1dOptions(2048).affine(true)));
    register_module("prelu", nn::PReLU(nn::PReLUOptions().num_parameters(2048)));
    register_module("lstm", nn::LSTM(nn::LSTMOptions(24, 32).num_layers(2).bidirectional(true)));
    register_module("gru", nn::GRU(24, 32));
    register_module("rnn", nn::RNN(40, 32));
    register_module("lstm_cell", nn::LSTMCell(24, 32));
    register_module("gru_cell", nn::GRUCell(24, 32));
    register_module("attention", nn::MultiheadAttention(64, 4));
    register_module("transformer", nn::Transformer(nn::TransformerOptions(32, 2, 1, 1).dim_feedforward(64)));
    register_module("adaptive",
                    nn::AdaptiveLogSoftmaxWithLoss(nn::AdaptiveLogSoftmaxWithLossOptions(64, 500, {100})));
  }
};

// What users do in constructors.
struct EveryInitialisation : nn::Module {
  EveryInitialisation() {
    fills();
    draws();
    arithmetic();
    at_once();
  }

  Tensor made(const std::string& name, at::IntArrayRef sizes = {64, 48}) {
    return register_parameter(name, torch::empty(sizes));
  }

  void fills() {
    nn::init::constant_(made("constant"), 0.5);
    nn::init::eye_(made("eye"));
    nn::init::dirac_(made("dirac", {32, 16, 3}));
    register_parameter("zeros", torch::zeros({2048}));
    register_parameter("full", torch::full({2048}, 3.0));
    register_buffer("strided", torch::zeros({64, 64}).t().slice(0, 0, 32).contiguous());
    made("slices").detach().slice(0, 0, 32).fill_(1);
    find("slices").detach().slice(0, 32).zero_();
    const torch::NoGradGuard no_grad;
    made("copied").copy_(find("slices"));
    find("slices").mul_(3);
  }

  void draws() {
    nn::init::uniform_(made("uniform"), -2, 2);
    nn::init::normal_(made("normal", {61, 17}));
    nn::init::xavier_normal_(made("xavier"));
    nn::init::kaiming_uniform_(made("kaiming"));
    nn::init::sparse_(made("sparse"), 0.5);
    nn::init::orthogonal_(made("orthogonal"));
    register_parameter("rand", torch::rand({5000}));
    register_buffer("permutation", torch::randperm(3000));
    register_buffer("integers", torch::randint(10, {3000}));
    const auto part = made("part").detach();
    part.slice(1, 3, 20).normal_();
    part.slice(1, 20).uniform_();
    part.slice(1, 0, 3).bernoulli_(0.3);
    auto own = at::make_generator<at::CPUGeneratorImpl>(7);
    made("own_generator").detach().normal_(0, 1, own);
    find("own_generator").detach().slice(0, 0, 2).uniform_(0, 1, own);
    torch::manual_seed(99);
    nn::init::normal_(made("other_seed"));
  }

  // Gives a parameter by its name, of those that this module has itself.
  Tensor find(const std::string& name) { return named_parameters(/*recurse=*/false)[name]; }

  void arithmetic() {
    register_parameter("scaled", torch::randn({60, 60}) * 0.02 + 1);
    register_parameter("truncated", torch::randn({60, 60}).clamp_(-2, 2).div_(3));
    register_parameter("converted", torch::randn({60, 60}).to(torch::kDouble));
    register_parameter("bf16", torch::randn({60, 60}).to(torch::kBFloat16));
    register_parameter("cloned", torch::randn({60, 60}).clone());
    const auto positions = torch::arange(100, torch::kFloat).unsqueeze(1);
    const auto rates = torch::exp(torch::arange(0, 32, 2, torch::kFloat) * -0.5);
    auto encoding = torch::zeros({100, 32});
    encoding.slice(1, 0, 32, 2).copy_(torch::sin(positions * rates));
    encoding.slice(1, 1, 32, 2).copy_(torch::cos(positions * rates));
    register_buffer("encoding", encoding);
  }

  void at_once() {
    register_buffer("table", torch::tensor(std::vector<float>(2000, 2.5F)));
    register_parameter("small", torch::randn({5}));
    register_parameter("sum", torch::randn({50, 50}).sum(0));
    register_parameter("drawn_by", torch::full({2048}, torch::randn({64, 64}).max().item<float>()));
  }
};

struct Seeds {
  std::shared_ptr<nn::Module> module;
  Tensor next;  // what the generator draws afterwards
};

template <class Module>
Seeds build(bool defers) {
  torch::manual_seed(11);
  Seeds built;
  {
    std::optional<DeferredInit> scope;
    if (defers) scope.emplace();
    built.module = std::make_shared<Module>();
  }
  built.next = torch::randn({37});
  return built;
}

void expect_same_values(const nn::Module& module, const nn::Module& expected) {
  const auto compare = [](const auto& all, const auto& others) {
    ASSERT_EQ(all.keys(), others.keys());
    for (const auto& item : all) {
      EXPECT_TRUE(torch::equal(item.value(), others[item.key()])) << item.key();
      EXPECT_EQ(item.value().requires_grad(), others[item.key()].requires_grad()) << item.key();
      EXPECT_EQ(item.value().strides(), others[item.key()].strides()) << item.key();
    }
  };
  compare(module.named_parameters(), expected.named_parameters());
  compare(module.named_buffers(), expected.named_buffers());
}

int count_deferred(const nn::Module& module) {
  int count = 0;
  for (const auto& tensor : module.parameters()) count += is_deferred(tensor) ? 1 : 0;
  for (const auto& tensor : module.buffers()) count += is_deferred(tensor) ? 1 : 0;
  return count;
}

template <class Module>
class DeferredModules : public ::testing::Test {};
using Modules = ::testing::Types<EveryLayer, EveryInitialisation>;
TYPED_TEST_SUITE(DeferredModules, Modules);

TYPED_TEST(DeferredModules, HaveTheValuesAndTheGeneratorOfOthers) {
  const auto expected = build<TypeParam>(/*defers=*/false);
  const auto built = build<TypeParam>(/*defers=*/true);
  EXPECT_TRUE(torch::equal(built.next, expected.next));
  materialize_module(*built.module);
  EXPECT_EQ(count_deferred(*built.module), 0);
  expect_same_values(*built.module, *expected.module);
}

// In any order, and by the operators that use them.
TYPED_TEST(DeferredModules, AreMaterializedByUse) {
  const auto expected = build<TypeParam>(/*defers=*/false);
  const auto built = build<TypeParam>(/*defers=*/true);
  auto parameters = built.module->named_parameters().items();
  const auto others = expected.module->named_parameters();
  std::ranges::reverse(parameters);
  for (const auto& item : parameters)
    EXPECT_TRUE(torch::equal(item.value(), others[item.key()])) << item.key();
}

std::vector<std::string> names_of_deferred(const nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) {
    if (is_deferred(item.value())) names.push_back(item.key());
  }
  return names;
}

TEST(DeferredInit, LeavesLargeTensorsWithoutMemory) {
  for (const auto& item : build<EveryLayer>(true).module->named_parameters())
    EXPECT_EQ(is_deferred(item.value()), item.value().numel() >= 1024) << item.key();
  const auto initialised = build<EveryInitialisation>(true).module;
  EXPECT_THAT(names_of_deferred(*initialised),
              ::testing::UnorderedElementsAre("constant", "dirac", "zeros", "full", "slices", "copied",
                                              "uniform", "normal", "xavier", "kaiming", "rand", "part",
                                              "own_generator", "other_seed", "scaled", "truncated",
                                              "converted", "bf16", "cloned", "drawn_by"));
}

TEST(DeferredInit, IsOverWithItsScope) {
  { const DeferredInit scope; }
  EXPECT_FALSE(is_deferred(torch::zeros({5000})));
  {
    const DeferredInit outer;
    { const DeferredInit inner; }
    EXPECT_TRUE(is_deferred(torch::zeros({5000})));
  }
  EXPECT_FALSE(is_deferred(torch::zeros({5000})));
}

TEST(DeferredInit, TapesWhatInitialisesTheModuleAfterwards) {
  const auto initialise = [](nn::Module& module) {
    for (auto& parameter : module.parameters()) nn::init::normal_(parameter, 0, 0.02);
    const torch::NoGradGuard no_grad;
    const DeferredInit scope;
    module.to(torch::kBFloat16);
  };
  auto expected = build<EveryLayer>(false);
  initialise(*expected.module);
  auto built = build<EveryLayer>(true);
  const auto before = count_deferred(*built.module);
  initialise(*built.module);
  EXPECT_EQ(count_deferred(*built.module), before);
  materialize_module(*built.module);
  expect_same_values(*built.module, *expected.module);
}

TEST(DeferredInit, ModulesComputeBeforeTheyAreSetUp) {
  const auto x = torch::ones({3, 64});
  const auto expected = build<EveryLayer>(false), built = build<EveryLayer>(true);
  const auto output = [&](const Seeds& of) {
    return of.module->named_modules()["linear"]->as<nn::Linear>()->forward(x);
  };
  output(built).sum().backward();
  EXPECT_TRUE(torch::equal(output(built), output(expected)));
}

TEST(DeferredInit, PrintsTensors) {
  torch::manual_seed(1);
  std::ostringstream expected, got;
  expected << torch::randn({40, 40});
  torch::manual_seed(1);
  Tensor tensor;
  {
    const DeferredInit scope;
    tensor = torch::randn({40, 40});
  }
  got << tensor;
  EXPECT_EQ(got.str(), expected.str());
}

template <class Use>
std::string refusal_of(Use use) {
  try {
    use();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

TEST(DeferredInit, NamesATensorWhoseAddressIsAskedFor) {
  Tensor tensor;
  {
    const DeferredInit scope;
    tensor = torch::randn({40, 50});
  }
  for (const auto& text :
       {refusal_of([&] { (void)tensor.data_ptr(); }), refusal_of([&] { (void)tensor.data_ptr<float>(); }),
        refusal_of([&] { (void)tensor.const_data_ptr<float>(); }),
        refusal_of([&] { (void)tensor.accessor<float, 2>(); }), refusal_of([&] {
          std::ostringstream file;
          torch::save(tensor, file);
        })}) {
    EXPECT_THAT(text, HasSubstr("shape [40, 50]"));
    EXPECT_THAT(text, HasSubstr("materialize"));
  }
  materialize(tensor);
  EXPECT_NO_THROW((void)tensor.data_ptr<float>());
}

TEST(DeferredInit, IsCleanAfterAnExceptionInAConstructor) {
  torch::manual_seed(5);
  const auto expected = (torch::randn({64, 64}), torch::randn({8}));
  torch::manual_seed(5);
  struct Throws : nn::Module {
    Throws() {
      register_parameter("w", torch::randn({64, 64}));
      throw std::runtime_error("no");
    }
  };
  EXPECT_THROW(
      {
        const DeferredInit scope;
        const Throws module;
      },
      std::runtime_error);
  EXPECT_FALSE(is_deferred(torch::zeros({5000})));
  EXPECT_TRUE(torch::equal(torch::randn({8}), expected));
}

TEST(DeferredInit, RefusesWrongCallsWhenTheyAreMade) {
  const DeferredInit scope;
  auto leaf = torch::empty({64, 64}, torch::requires_grad());
  EXPECT_THAT(refusal_of([&] { leaf.normal_(); }), HasSubstr("leaf Variable that requires grad"));
  EXPECT_THAT(refusal_of([] { torch::empty({64, 64}).normal_(0, -1); }), HasSubstr("std"));
  EXPECT_THAT(refusal_of([] { torch::empty({64, 64}).add_(torch::empty({65, 64})); }), HasSubstr("size"));
}

// The graph is that of any other tensor.
TEST(DeferredInit, ComputesGradientsOfWhatIsMadeOfParameters) {
  const DeferredInit scope;
  auto leaf = torch::ones({64, 64}, torch::requires_grad());
  (leaf * 3).sum().backward();
  EXPECT_TRUE(torch::equal(leaf.grad(), torch::full({64, 64}, 3.0)));
}

}  // namespace
}  // namespace lockstep
