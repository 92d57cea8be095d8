// Modules train on the devices as on the CPU, to the bit, without a wait of the host and without a report.

#include "sim/installed.h"

namespace lockstep::sim {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using ::testing::IsEmpty;

struct Batch {
  at::Tensor data, target;
};

// One kind of module, and what it is given.
struct Kind {
  std::string name;
  std::function<nn::AnyModule()> make;
  std::function<at::Tensor()> data;
  bool without_onednn = false;  ///< as the CPU would else take kernels that it shares with no device
  std::size_t equalities = 0;   ///< of tensors, that LibTorch's forward asks the host for
};

std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }

struct LstmClassifier : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const auto [output, hidden] = lstm(x);
    return head(output.select(1, -1) + std::get<1>(hidden)[0].repeat({1, 2}));
  }
  nn::LSTM lstm = register_module(
      "lstm", nn::LSTM(nn::LSTMOptions(6, 8).num_layers(2).bidirectional(true).batch_first(true)));
  nn::Linear head = register_module("head", nn::Linear(16, 5));
};

struct GruClassifier : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const auto [output, hidden] = gru(x.transpose(0, 1));
    return head(output.select(0, -1) + hidden[1]);
  }
  nn::GRU gru = register_module("gru", nn::GRU(nn::GRUOptions(6, 8).num_layers(2)));
  nn::Linear head = register_module("head", nn::Linear(8, 5));
};

struct CellClassifier : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    auto state =
        std::make_tuple(at::zeros({x.size(0), 8}, x.options()), at::zeros({x.size(0), 8}, x.options()));
    auto other = at::zeros({x.size(0), 8}, x.options());
    for (const auto& step : x.unbind(1)) {
      state = lstm(step, state);
      other = gru(step, other);
    }
    return head(std::get<0>(state) + other);
  }
  nn::LSTMCell lstm = register_module("lstm", nn::LSTMCell(6, 8));
  nn::GRUCell gru = register_module("gru", nn::GRUCell(6, 8));
  nn::Linear head = register_module("head", nn::Linear(8, 5));
};

// With LibTorch's own attention, causal, and without a mask.
struct Attention : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = in(x).chunk(3, -1);
    const auto heads = [](const at::Tensor& t) {
      return t.view({t.size(0), t.size(1), 2, 3}).transpose(1, 2);
    };
    const auto mixed =
        at::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]), heads(parts[2]), {}, 0.0,
                                         /*is_causal=*/true);
    return head(mixed.transpose(1, 2).flatten(2).mean(1));
  }
  nn::Linear in = register_module("in", nn::Linear(6, 18));
  nn::Linear head = register_module("head", nn::Linear(6, 5));
};

struct MultiHead : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const auto steps = x.transpose(0, 1);
    return head(std::get<0>(attention(steps, steps, steps)).mean(0));
  }
  nn::MultiheadAttention attention = register_module("attention", nn::MultiheadAttention(6, 2));
  nn::Linear head = register_module("head", nn::Linear(6, 5));
};

struct Encoder : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return head(layer(x.transpose(0, 1)).mean(0)); }
  nn::TransformerEncoderLayer layer = register_module(
      "layer",
      nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(6, 2).dim_feedforward(12).dropout(0)));
  nn::Linear head = register_module("head", nn::Linear(6, 5));
};

template <class Module>
nn::AnyModule any() {
  return nn::AnyModule(std::make_shared<Module>());
}
// A Sequential, whose forward() is a template, as AnyModule takes none.
struct Chain : nn::Module {
  explicit Chain(nn::Sequential of) : layers(register_module("layers", std::move(of))) {}
  at::Tensor forward(const at::Tensor& x) { return layers->forward(x); }
  nn::Sequential layers;
};

template <class... Layers>
nn::AnyModule sequence(Layers... layers) {
  return nn::AnyModule(std::make_shared<Chain>(nn::Sequential(std::move(layers)...)));
}

at::Tensor sequences() { return at::randn({4, 7, 6}); }
at::Tensor images() { return at::randn({4, 3, 8, 8}); }

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"Mlp", [] { return sequence(nn::Linear(20, 64), nn::ReLU(), nn::Linear(64, 5)); },
       [] {
         return at::randn({16, 20});
       }},
      {"ConvBatchNormPool",
       [] {
         return sequence(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), nn::BatchNorm2d(8), nn::ReLU(),
                         nn::MaxPool2d(2), nn::Conv2d(nn::Conv2dOptions(8, 8, 3).groups(2)),
                         nn::GroupNorm(2, 8), nn::SiLU(), nn::AdaptiveAvgPool2d(1), nn::Flatten(),
                         nn::Linear(8, 5));
       },
       images},
      {"TransposedConv",
       [] {
         return sequence(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 4, 2).stride(2)),
                         nn::InstanceNorm2d(4), nn::LeakyReLU(),
                         nn::Upsample(nn::UpsampleOptions().size(std::vector<std::int64_t>{8, 8})),
                         nn::Flatten(), nn::Linear(256, 5));
       },
       images},
      {"EmbeddingLayerNorm",
       [] {
         return sequence(nn::Embedding(30, 16), nn::LayerNorm(nn::LayerNormOptions({16})), nn::GELU(),
                         nn::Flatten(), nn::Linear(16 * 7, 5));
       },
       [] {
         return at::randint(30, {4, 7});
       }},
      {"Lstm", any<LstmClassifier>, sequences, /*without_onednn=*/true},
      {"Gru", any<GruClassifier>, sequences},
      {"Cells", any<CellClassifier>, sequences},
      {"Attention", any<Attention>, sequences},
      {.name = "MultiHead", .make = any<MultiHead>, .data = sequences, .equalities = 8},
      {.name = "Encoder", .make = any<Encoder>, .data = sequences, .equalities = 8},
  };
  return all;
}

// Drives AdamW's kernel of LibTorch, with its counts of steps on the device.
class FusedAdamW {
 public:
  explicit FusedAdamW(std::vector<at::Tensor> parameters) : parameters_(std::move(parameters)) {
    for (const auto& parameter : parameters_) {
      averages_.push_back(at::zeros_like(parameter));
      squares_.push_back(at::zeros_like(parameter));
      steps_.push_back(at::ones({}, parameter.options().dtype(at::kFloat)));
    }
  }
  void step() {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> gradients;
    for (auto& parameter : parameters_) gradients.push_back(parameter.grad());
    at::_fused_adamw_(parameters_, gradients, averages_, squares_, {}, steps_, 1e-2, 0.9, 0.999, 0.01, 1e-8,
                      false, false);
  }
  void zero_grad() {
    for (auto& parameter : parameters_) parameter.mutable_grad().reset();
  }

 private:
  std::vector<at::Tensor> parameters_, averages_, squares_, steps_;
};

struct Trained {
  std::vector<at::Tensor> tensors;  ///< on the CPU
  std::vector<std::string> host_syncs = {};
};

std::vector<at::Tensor> tensors_of(const nn::Module& module) {
  auto tensors = module.parameters();
  for (const auto& buffer : module.buffers()) tensors.push_back(buffer);
  return tensors;
}

template <class Optimizer>
Trained train(const Kind& kind, at::Device device,
              const std::function<Optimizer(std::vector<at::Tensor>)>& make_optimizer) {
  torch::manual_seed(0);
  auto module = kind.make();
  module.ptr()->to(device);
  auto optimizer = make_optimizer(module.ptr()->parameters());
  std::vector<Batch> batches;
  for (int i = 0; i < 4; ++i) {
    auto data = kind.data();
    batches.push_back({data.to(device), at::randint(5, {data.size(0)}).to(device)});
  }
  take_host_syncs();
  at::Tensor loss;
  for (const auto& batch : batches) {
    optimizer.zero_grad();
    loss = F::cross_entropy(module.forward(batch.data), batch.target);
    loss.backward();
    optimizer.step();
  }
  Trained trained{.tensors = {}, .host_syncs = take_host_syncs()};
  trained.tensors.push_back(on_cpu(loss.detach()));
  for (const auto& tensor : tensors_of(*module.ptr())) trained.tensors.push_back(on_cpu(tensor.detach()));
  return trained;
}

void expect_equal(const Trained& device, const Trained& host) {
  ASSERT_EQ(device.tensors.size(), host.tensors.size());
  for (std::size_t i = 0; i < host.tensors.size(); ++i) {
    EXPECT_TRUE(torch::equal(device.tensors[i], host.tensors[i])) << i << " of " << host.tensors.size();
    EXPECT_TRUE(host.tensors[i].isfinite().all().item<bool>());
  }
}

class SimModules : public SimTest, public ::testing::WithParamInterface<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, SimModules, ::testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(SimModules, TrainAsOnTheCpu) {
  auto& context = at::globalContext();
  context.setUserEnabledMkldnn(!GetParam().without_onednn);
  const std::function<FusedAdamW(std::vector<at::Tensor>)> make = [](auto parameters) {
    return FusedAdamW(parameters);
  };
  const auto host = train(GetParam(), at::kCPU, make);
  const auto device = train(GetParam(), kSim, make);
  context.setUserEnabledMkldnn(true);
  expect_equal(device, host);
  EXPECT_EQ(device.host_syncs, std::vector<std::string>(GetParam().equalities, "aten::equal"));
  EXPECT_THAT(take_reports(), IsEmpty());
}

template <class Optimizer, class Options>
void expect_trained_as_on_the_cpu(const Options& options) {
  const std::function<Optimizer(std::vector<at::Tensor>)> make = [&](auto parameters) {
    return Optimizer(std::move(parameters), options);
  };
  expect_equal(train(kinds().front(), kSim, make), train(kinds().front(), at::kCPU, make));
  EXPECT_THAT(take_reports(), IsEmpty());
}

class SimTorchOptimizers : public SimTest {};

TEST_F(SimTorchOptimizers, StepAsOnTheCpu) {
  namespace optim = torch::optim;
  expect_trained_as_on_the_cpu<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).nesterov(true));
  expect_trained_as_on_the_cpu<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true));
  expect_trained_as_on_the_cpu<optim::AdamW>(optim::AdamWOptions(0.01));
  expect_trained_as_on_the_cpu<optim::RMSprop>(optim::RMSpropOptions(0.01).centered(true));
}

}  // namespace
}  // namespace lockstep::sim
