// Every layer of LibTorch's C++ frontend, sharded over two processes, with memory that is overwritten and
// freed after every operator: had one use of a weight gone unnoticed, gradients would be NaN. Then again,
// each run a second time in backward.
#include <gtest/gtest.h>

#include <ATen/autocast_mode.h>

#include <functional>

#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/testing/fork_ranks.h>
#include <lockstep/torch.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;
using at::Tensor;

struct ZooCase {
  const char* name;
  std::function<std::shared_ptr<nn::Module>()> make;
  std::function<Tensor(nn::Module&)> loss;
};

// A case of one layer: `loss` gets the layer's implementation.
template <class Layer, class Make, class Loss>
ZooCase zoo_case(const char* name, Make make, Loss loss) {
  return {name, [make] { return std::static_pointer_cast<nn::Module>(make().ptr()); },
          [loss](nn::Module& module) { return loss(dynamic_cast<typename Layer::ContainedType&>(module)); }};
}

// The sum of squares of what the layer makes of random numbers of a shape.
template <class Layer, class Make>
ZooCase plain_case(const char* name, std::vector<std::int64_t> shape, Make make) {
  return zoo_case<Layer>(name, make, [shape](auto& layer) {
    return layer.forward(torch::randn(shape).requires_grad_()).pow(2).sum();
  });
}

template <class Layer, class Make>
ZooCase recurrent_case(const char* name, Make make) {
  return zoo_case<Layer>(name, make, [](auto& layer) {
    return std::get<0>(layer.forward(torch::randn({5, 3, 6}))).pow(2).sum();
  });
}

template <class Layer, class Make>
ZooCase lookup_case(const char* name, Make make) {
  return zoo_case<Layer>(name, make, [](auto& layer) {
    return layer.forward(torch::randint(10, {4, 3})).pow(2).sum();
  });
}

struct TiedImpl : nn::Module {
  TiedImpl() {
    register_module("embedding", embedding);
    register_module("norm", norm);
  }
  Tensor forward(const Tensor& tokens) {
    return torch::matmul(norm->forward(embedding->forward(tokens)), embedding->weight.t());
  }
  nn::Embedding embedding{20, 8};
  nn::LayerNorm norm{nn::LayerNormOptions({8})};
};
TORCH_MODULE(Tied);

struct ViewsImpl : nn::Module {
  ViewsImpl()
      : w(register_parameter("w", torch::randn({24, 8}))), b(register_parameter("b", torch::randn({24}))) {}
  Tensor forward(const Tensor& x) {
    const auto c = w.chunk(3), d = b.chunk(3);
    const auto q = torch::linear(x, c[0], d[0]), k = torch::linear(x, c[1], d[1]);
    const auto v = torch::matmul(x, c[2].t()) + d[2];
    const auto y = torch::scaled_dot_product_attention(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0));
    return y.squeeze(0) * w[0] + w.view({3, 8, 8})[1].mv(w[1]) +
           w.index({torch::tensor({0, 3})}).sum(0) * torch::cat({w.slice(0, 0, 1), w.slice(0, 1, 2)}).sum(0);
  }
  Tensor w, b;
};
TORCH_MODULE(Views);

std::vector<ZooCase> dense_cases() {
  using namespace nn;
  return {
      plain_case<Linear>("Linear", {2, 3, 8}, [] { return Linear(8, 4); }),
      plain_case<Linear>("Linear without bias", {5, 8},
                         [] { return Linear(LinearOptions(8, 4).bias(false)); }),
      zoo_case<Bilinear>(
          "Bilinear", [] { return Bilinear(4, 5, 3); },
          [](auto& m) {
            return m.forward(torch::randn({6, 4}), torch::randn({6, 5})).pow(2).sum();
          }),
      plain_case<Conv1d>("Conv1d", {2, 4, 16}, [] { return Conv1d(Conv1dOptions(4, 8, 3).groups(2)); }),
      plain_case<Conv2d>("Conv2d", {2, 3, 16, 16}, [] { return Conv2d(Conv2dOptions(3, 8, 3).padding(1)); }),
      plain_case<Conv2d>("large Conv2d", {8, 16, 32, 32}, [] { return Conv2d(Conv2dOptions(16, 32, 3)); }),
      plain_case<Conv2d>(
          "circular Conv2d", {2, 3, 8, 8},
          [] { return Conv2d(Conv2dOptions(3, 8, 3).padding(1).padding_mode(torch::kCircular)); }),
      plain_case<Conv3d>("Conv3d", {1, 2, 5, 5, 5}, [] { return Conv3d(Conv3dOptions(2, 3, 3)); }),
      plain_case<ConvTranspose1d>("ConvTranspose1d", {2, 3, 8},
                                  [] { return ConvTranspose1d(ConvTranspose1dOptions(3, 4, 3)); }),
      plain_case<ConvTranspose2d>("ConvTranspose2d", {2, 3, 8, 8},
                                  [] { return ConvTranspose2d(ConvTranspose2dOptions(3, 8, 3)); }),
      plain_case<ConvTranspose3d>("ConvTranspose3d", {1, 2, 4, 4, 4},
                                  [] { return ConvTranspose3d(ConvTranspose3dOptions(2, 3, 3)); }),
      plain_case<LayerNorm>("LayerNorm", {3, 8}, [] { return LayerNorm(LayerNormOptions({8})); }),
      plain_case<GroupNorm>("GroupNorm", {3, 8, 4}, [] { return GroupNorm(2, 8); }),
      plain_case<BatchNorm1d>("BatchNorm1d", {6, 3}, [] { return BatchNorm1d(3); }),
      plain_case<BatchNorm2d>("BatchNorm2d", {4, 3, 5, 5}, [] { return BatchNorm2d(3); }),
      plain_case<BatchNorm3d>("BatchNorm3d", {4, 3, 2, 2, 2}, [] { return BatchNorm3d(3); }),
      plain_case<InstanceNorm2d>("InstanceNorm2d", {4, 3, 5, 5},
                                 [] { return InstanceNorm2d(InstanceNorm2dOptions(3).affine(true)); }),
      zoo_case<BatchNorm1d>(
          "BatchNorm1d in evaluation", [] { return BatchNorm1d(3); },
          [](auto& m) {
            m.eval();
            return m.forward(torch::randn({4, 3})).pow(3).sum();
          }),
      plain_case<PReLU>("PReLU", {4, 3}, [] { return PReLU(); }),
  };
}

std::vector<ZooCase> sequence_cases() {
  using namespace nn;
  return {
      lookup_case<Embedding>("Embedding", [] { return Embedding(10, 4); }),
      lookup_case<Embedding>("Embedding with padding",
                             [] { return Embedding(EmbeddingOptions(10, 4).padding_idx(1)); }),
      lookup_case<Embedding>("Embedding of sparse gradients",
                             [] { return Embedding(EmbeddingOptions(10, 4).sparse(true)); }),
      lookup_case<Embedding>("Embedding that writes to its weight",
                             [] { return Embedding(EmbeddingOptions(10, 4).max_norm(0.5)); }),
      lookup_case<EmbeddingBag>("EmbeddingBag", [] { return EmbeddingBag(10, 4); }),
      recurrent_case<LSTM>(
          "LSTM", [] { return LSTM(LSTMOptions(6, 8).num_layers(2).bidirectional(true).dropout(0.3)); }),
      recurrent_case<GRU>("GRU", [] { return GRU(GRUOptions(6, 8).num_layers(2)); }),
      recurrent_case<RNN>("RNN", [] { return RNN(RNNOptions(6, 8)); }),
      zoo_case<LSTM>(
          "LSTM, flattened", [] { return LSTM(6, 8); },
          [](auto& m) {
            m.flatten_parameters();
            return std::get<0>(m.forward(torch::randn({5, 3, 6}))).pow(2).sum();
          }),
      zoo_case<LSTMCell>(
          "LSTMCell", [] { return LSTMCell(6, 8); },
          [](auto& m) {
            return std::get<0>(m.forward(torch::randn({3, 6}))).pow(2).sum();
          }),
      plain_case<GRUCell>("GRUCell", {3, 6}, [] { return GRUCell(6, 8); }),
      plain_case<RNNCell>("RNNCell", {3, 6}, [] { return RNNCell(6, 8); }),
      zoo_case<MultiheadAttention>(
          "MultiheadAttention", [] { return MultiheadAttention(MultiheadAttentionOptions(8, 2)); },
          [](auto& m) {
            const auto x = torch::randn({5, 3, 8});
            return std::get<0>(m.forward(x, x, x)).pow(2).sum();
          }),
      zoo_case<MultiheadAttention>(
          "MultiheadAttention of other keys",
          [] {
            return MultiheadAttention(MultiheadAttentionOptions(8, 2).kdim(6).vdim(6).add_bias_kv(true));
          },
          [](auto& m) {
            const auto keys = torch::randn({5, 3, 6}), values = torch::randn({5, 3, 6});
            return std::get<0>(m.forward(torch::randn({5, 3, 8}), keys, values)).pow(2).sum();
          }),
      plain_case<TransformerEncoderLayer>(
          "TransformerEncoderLayer", {5, 3, 8},
          [] { return TransformerEncoderLayer(TransformerEncoderLayerOptions(8, 2).dim_feedforward(16)); }),
      zoo_case<Transformer>(
          "Transformer", [] { return Transformer(TransformerOptions(8, 2, 2, 2).dim_feedforward(16)); },
          [](auto& m) {
            return m.forward(torch::randn({5, 3, 8}), torch::randn({4, 3, 8})).pow(2).sum();
          }),
      zoo_case<AdaptiveLogSoftmaxWithLoss>(
          "AdaptiveLogSoftmaxWithLoss",
          [] {
            return AdaptiveLogSoftmaxWithLoss(
                AdaptiveLogSoftmaxWithLossOptions(8, 20, {5, 12}).div_value(2.));
          },
          [](auto& m) {
            return -m.forward(torch::randn({6, 8}), torch::arange(0, 18, 3)).output.mean();
          }),
  };
}

std::vector<ZooCase> special_cases() {
  using namespace nn;
  return {
      zoo_case<Tied>(
          "tied embedding", [] { return Tied(); },
          [](auto& m) { return m.forward(torch::randint(20, {6})).log_softmax(-1).pow(2).sum(); }),
      plain_case<Views>("views", {5, 8}, [] { return Views(); }),
      zoo_case<Linear>(
          "second derivatives", [] { return Linear(6, 6); },
          [](auto& m) {
            const auto x = torch::randn({4, 6}).requires_grad_();
            const auto y = torch::tanh(m.forward(x)).pow(2).sum();
            return torch::autograd::grad({y}, {x}, {}, true, true)[0].pow(2).sum() + y;
          }),
      zoo_case<Linear>(
          "one weight three times", [] { return Linear(6, 6); },
          [](auto& m) {
            const auto once = torch::relu(m.forward(torch::randn({4, 6})));
            return m.forward(torch::tanh(m.forward(once))).pow(2).sum();
          }),
      zoo_case<Sequential>(
          "autocast",
          [] { return Sequential(Linear(8, 16), LayerNorm(LayerNormOptions({16})), Linear(16, 4)); },
          [](auto& m) {
            at::autocast::set_autocast_enabled(at::kCPU, true);
            at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
            const auto y = m.forward(torch::randn({5, 8}));
            at::autocast::clear_cache();
            at::autocast::set_autocast_enabled(at::kCPU, false);
            return y.to(at::kFloat).pow(2).sum();
          }),
      zoo_case<Sequential>(
          "bfloat16",
          [] {
            auto m = Sequential(Linear(8, 16), LayerNorm(LayerNormOptions({16})), Linear(16, 4));
            m->to(at::kBFloat16);
            return m;
          },
          [](auto& m) {
            return m.forward(torch::randn({5, 8}).to(at::kBFloat16)).pow(2).sum();
          }),
  };
}

Tensor loss_on_rank(const ZooCase& zoo, nn::Module& module, int rank) {
  torch::manual_seed(7 + static_cast<std::uint64_t>(rank));
  return zoo.loss(module);
}

std::shared_ptr<nn::Module> made(const ZooCase& zoo) {
  torch::manual_seed(3);
  return zoo.make();
}

// The mean over ranks of whole gradients, by name; undefined where no rank has one.
std::map<std::string, Tensor> expected_gradients(const ZooCase& zoo, const Communicator& comm) {
  const auto module = made(zoo);
  loss_on_rank(zoo, *module, comm.rank()).backward();
  std::map<std::string, Tensor> gradients;
  for (const auto& item : module->named_parameters()) {
    if (!item.value().grad().defined()) continue;
    gradients[item.key()] = item.value().grad().to_dense().contiguous();
    comm.all_reduce(gradients[item.key()], ReduceOp::kAvg);
  }
  return gradients;
}

// Checkpointed, the whole case is one block.
void expect_same_gradients(const ZooCase& zoo, const Communicator& comm, bool is_checkpointed) {
  const auto expected = expected_gradients(zoo, comm);
  const auto module = made(zoo);
  ActivationCheckpointing checkpointing;
  if (is_checkpointed) checkpointing = [&](const nn::Module& part) { return &part == module.get(); };
  ShardedEngine engine(*module, comm,
                       {.auto_wrap_policy = [](const nn::Module& part) { return part.children().empty(); },
                        .activation_checkpointing = checkpointing,
                        .release_after_every_operator = true,
                        .broadcast_buffers = false});
  engine.backward(loss_on_rank(zoo, *module, comm.rank()));
  for (const auto& [name, piece] : engine.parameters()) {
    const auto found = expected.find(name);
    ASSERT_EQ(piece.grad().defined(), found != expected.end()) << zoo.name << ": " << name;
    if (found == expected.end()) continue;
    const auto begin = engine.shard_of(name, piece).begin;
    EXPECT_TRUE(piece.grad().equal(found->second.view({-1}).narrow(0, begin, piece.numel())))
        << zoo.name << ": " << name << " on rank " << comm.rank();
  }
}

LOCKSTEP_RANK_BODY(sharded_module_zoo)(Communicator comm, std::string cases)->std::string {
  const auto all = cases == "dense"      ? dense_cases()
                   : cases == "sequence" ? sequence_cases()
                                         : special_cases();
  for (const auto& zoo : all) {
    SCOPED_TRACE(zoo.name);
    try {
      for (const bool is_checkpointed : {false, true}) expect_same_gradients(zoo, comm, is_checkpointed);
    } catch (const std::exception& error) {
      throw std::runtime_error(std::string(zoo.name) + ": " + error.what());
    }
  }
  return std::to_string(all.size());
}

TEST(ShardedModuleZoo, DenseLayers) {
  for (const auto& rank : testing::fork_ranks(2, "sharded_module_zoo", "dense"))
    EXPECT_EQ(rank.result, "19") << rank.error;
}
TEST(ShardedModuleZoo, SequenceLayers) {
  for (const auto& rank : testing::fork_ranks(2, "sharded_module_zoo", "sequence"))
    EXPECT_EQ(rank.result, "17") << rank.error;
}
TEST(ShardedModuleZoo, SpecialUses) {
  for (const auto& rank : testing::fork_ranks(2, "sharded_module_zoo", "special"))
    EXPECT_EQ(rank.result, "6") << rank.error;
}

}  // namespace
}  // namespace lockstep
