// transformer_lm: a pre-norm decoder with learned positions and tied embeddings.
#include "models.h"

namespace parity {
namespace {

namespace nn = torch::nn;

struct Sizes {
  std::int64_t vocab, width, context, heads;
  double norm_eps;
  std::string gelu;  // as at::gelu takes it: "none" or "tanh"
};

nn::LayerNorm layer_norm(const Sizes& sizes) {
  return nn::LayerNorm(nn::LayerNormOptions({sizes.width}).eps(sizes.norm_eps));
}

// Causal self-attention; q, k and v lie side by side in the output of one Linear.
struct AttentionImpl : nn::Module {
  explicit AttentionImpl(const Sizes& sizes)
      : heads(sizes.heads),
        qkv(register_module("qkv", nn::Linear(nn::LinearOptions(sizes.width, 3 * sizes.width).bias(false)))),
        proj(register_module("proj", nn::Linear(sizes.width, sizes.width))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const auto rows = x.size(0), length = x.size(1), width = x.size(2);
    const auto parts = qkv->forward(x).chunk(3, -1);
    const auto split = [&](const torch::Tensor& part) {
      return part.view({rows, length, heads, width / heads}).transpose(1, 2);
    };
    const auto mixed = at::scaled_dot_product_attention(split(parts[0]), split(parts[1]), split(parts[2]),
                                                        /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                                        /*is_causal=*/true);
    return proj->forward(mixed.transpose(1, 2).reshape({rows, length, width}));
  }

  std::int64_t heads;
  nn::Linear qkv, proj;
};
TORCH_MODULE(Attention);

struct FeedForwardImpl : nn::Module {
  explicit FeedForwardImpl(const Sizes& sizes)
      : gelu(sizes.gelu),
        fc(register_module("fc", nn::Linear(sizes.width, 4 * sizes.width))),
        proj(register_module("proj", nn::Linear(4 * sizes.width, sizes.width))) {}

  torch::Tensor forward(const torch::Tensor& x) { return proj->forward(at::gelu(fc->forward(x), gelu)); }

  std::string gelu;
  nn::Linear fc, proj;
};
TORCH_MODULE(FeedForward);

struct BlockImpl : nn::Module {
  explicit BlockImpl(const Sizes& sizes)
      : ln1(register_module("ln1", layer_norm(sizes))),
        attn(register_module("attn", Attention(sizes))),
        ln2(register_module("ln2", layer_norm(sizes))),
        mlp(register_module("mlp", FeedForward(sizes))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = x + attn->forward(ln1->forward(x));
    return x + mlp->forward(ln2->forward(x));
  }

  nn::LayerNorm ln1;
  Attention attn;
  nn::LayerNorm ln2;
  FeedForward mlp;
};
TORCH_MODULE(Block);

std::string gelu_of(const Case& golden, const nlohmann::json& activation) {
  if (activation == "gelu") return "none";
  if (activation == "gelu_tanh") return "tanh";
  golden.refuse("model.activation", activation, "gelu or gelu_tanh");
}

class TransformerLm final : public GoldenModule {
 public:
  TransformerLm(const Case& golden, Record& record) : GoldenModule(golden, record) {
    const Sizes sizes{.vocab = model().at("vocab"),
                      .width = model().at("d_model"),
                      .context = model().at("context"),
                      .heads = model().at("heads"),
                      .norm_eps = model().at("layer_norm_eps"),
                      .gelu = gelu_of(golden, model().at("activation"))};
    tok_ = register_module("tok", nn::Embedding(sizes.vocab, sizes.width));
    pos_ = register_module("pos", nn::Embedding(sizes.context, sizes.width));
    blocks_ = register_module("blocks", nn::ModuleList());
    for (int i = 0; i < model().at("layers").get<int>(); ++i) blocks_->push_back(Block(sizes));
    ln_f_ = register_module("ln_f", layer_norm(sizes));
  }

 private:
  torch::Tensor forward(torch::Tensor tokens) override {
    auto x = tok_->forward(tokens) + pos_->forward(torch::arange(tokens.size(1), tokens.options()));
    for (const auto& block : *blocks_) x = block->as<Block>()->forward(x);
    return torch::matmul(ln_f_->forward(x), tok_->weight.t());
  }

  nn::Embedding tok_{nullptr};
  nn::Embedding pos_{nullptr};
  nn::ModuleList blocks_{nullptr};
  nn::LayerNorm ln_f_{nullptr};
};

}  // namespace

std::shared_ptr<GoldenModule> make_transformer_lm(const Case& golden, Record& record) {
  return std::make_shared<TransformerLm>(golden, record);
}

}  // namespace parity
