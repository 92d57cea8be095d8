// LibTorch's modules with weights that are there only while an announced operator runs: had one use of a
// weight not been announced, its result would be NaN.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <deque>
#include <functional>
#include <unordered_map>

#include <lockstep/parallel/dispatch/tensor_mark.h>

namespace lockstep {
namespace {

// Written past the dispatcher, so that autograd sees no change.
void write_bytes(const at::Tensor& to, const at::Tensor& from) {
  auto* data = to.storage().unsafeGetStorageImpl()->mutable_data();
  std::memcpy(data, from.const_data_ptr(), from.nbytes());
}

class AbsentWeights final : public UseHandler {
 public:
  explicit AbsentWeights(const torch::nn::Module& module) {
    for (const auto& parameter : module.parameters()) {
      contents_.push_back(parameter.detach().clone());
      absent_.push_back(at::full_like(contents_.back(), std::nan("")));
      marks_.emplace_back(parameter, *this, marks_.size());
      write_bytes(parameter, absent_.back());
    }
  }
  void before_use(OperatorCall&, std::span<const TensorUse> uses) override {
    ++operators;
    for (const auto& use : uses) write_bytes(use.mark->tensor(), contents_[use.mark->tag()]);
  }
  void replace(OperatorCall& call, std::span<const TensorUse> uses) override {
    call.run();
    for (const auto& use : uses) write_bytes(use.mark->tensor(), absent_[use.mark->tag()]);
  }
  int operators = 0;

 private:
  std::vector<at::Tensor> contents_, absent_;
  std::deque<TensorMark> marks_;
};

// The loss, the gradient of the input where there is one, and those of the parameters.
using Results = std::vector<at::Tensor>;
using Forward = std::function<at::Tensor(torch::nn::Module&, const at::Tensor&)>;

struct Case {
  const char* name;
  std::function<std::shared_ptr<torch::nn::Module>()> make;
  std::function<at::Tensor()> input;
  Forward forward;
};

Results train_once(const Case& test, torch::nn::Module& module) {
  auto input = test.input();
  if (input.is_floating_point()) input.set_requires_grad(true);
  torch::manual_seed(5);
  const auto loss = test.forward(module, input).pow(2).sum();
  loss.backward();
  Results results{loss.detach(), input.grad()};
  for (const auto& parameter : module.parameters()) results.push_back(parameter.grad());
  return results;
}

void expect_same_bits(const Results& got, const Results& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), expected[i].defined()) << i;
    EXPECT_TRUE(!got[i].defined() || got[i].equal(expected[i])) << i;
  }
}

template <class Holder>
at::Tensor output_of(torch::nn::Module& module, const at::Tensor& input) {
  using Impl = typename Holder::ContainedType;
  const auto result = dynamic_cast<Impl&>(module).forward(input);
  if constexpr (std::is_same_v<std::decay_t<decltype(result)>, at::Tensor>) {
    return result;
  } else {
    return std::get<0>(result);
  }
}

template <class Holder, class... Args>
Case module_case(const char* name, std::vector<std::int64_t> shape, Args... args) {
  return {name, [=] { return Holder(args...).ptr(); }, [=] { return at::randn(shape); }, output_of<Holder>};
}

std::vector<Case> cases() {
  using namespace torch::nn;
  return {
      module_case<Linear>("Linear", {4, 6}, 6, 5),
      module_case<Linear>("Linear3d", {2, 4, 6}, 6, 5),
      module_case<Conv1d>("Conv1d", {2, 4, 9}, Conv1dOptions(4, 6, 3).groups(2)),
      module_case<Conv2d>("Conv2d", {2, 3, 8, 8}, Conv2dOptions(3, 4, 3).padding(1)),
      module_case<ConvTranspose2d>("ConvTranspose2d", {2, 3, 5, 5}, ConvTranspose2dOptions(3, 4, 3)),
      module_case<LayerNorm>("LayerNorm", {4, 6}, LayerNormOptions({6})),
      module_case<GroupNorm>("GroupNorm", {4, 6, 3}, GroupNormOptions(2, 6)),
      module_case<BatchNorm1d>("BatchNorm", {8, 6}, 6),
      module_case<PReLU>("PReLU", {4, 6}, PReLUOptions().num_parameters(6)),
      module_case<LSTM>("LSTM", {5, 2, 4}, LSTMOptions(4, 3).num_layers(2).bidirectional(true)),
      module_case<GRU>("GRU", {5, 2, 4}, GRUOptions(4, 3)),
      module_case<RNN>("RNN", {5, 2, 4}, RNNOptions(4, 3)),
      module_case<TransformerEncoderLayer>("TransformerEncoderLayer", {5, 2, 8},
                                           TransformerEncoderLayerOptions(8, 2).dim_feedforward(16)),
      {"Embedding", [] { return Embedding(EmbeddingOptions(7, 4).padding_idx(1)).ptr(); },
       [] {
         return at::tensor({0, 3, 1, 6, 3});
       },
       output_of<Embedding>},
      {"EmbeddingBag", [] { return EmbeddingBag(EmbeddingBagOptions(7, 4)).ptr(); },
       [] {
         return at::tensor({0, 3, 2, 6}).reshape({2, 2});
       },
       [](Module& m, const at::Tensor& x) { return dynamic_cast<EmbeddingBagImpl&>(m).forward(x); }},
      {"UsedThreeTimesAndThroughViews", [] { return Linear(4, 4).ptr(); },
       [] {
         return at::randn({4, 4});
       },
       [](Module& m, const at::Tensor& x) {
         auto& layer = dynamic_cast<LinearImpl&>(m);
         const auto rows = layer.weight.chunk(2);
         return layer.forward(layer.forward(x)) + x.mm(at::cat({rows[1], rows[0]})) * layer.bias[2];
       }},
  };
}

class ModuleUses : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Modules, ModuleUses, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(ModuleUses, AreAllAnnounced) {
  torch::manual_seed(3);
  const auto module = GetParam().make();
  const auto marked = module->clone();
  Case test = GetParam();
  const auto input = test.input();
  test.input = [=] { return input.clone(); };
  const auto expected = train_once(test, *module);
  AbsentWeights handler(*marked);
  expect_same_bits(train_once(test, *marked), expected);
  EXPECT_GT(handler.operators, 0);
}

}  // namespace
}  // namespace lockstep
