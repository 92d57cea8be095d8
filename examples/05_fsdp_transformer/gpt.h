// A decoder of the kind of GPT-2: tokens in, scores of the next token out. Plain torch::nn: nothing in it
// knows how many ranks there are, or who holds its parameters.
//
// Radford et al., Language Models are Unsupervised Multitask Learners (2019). Letters of shapes:
// B batch, T tokens of a sample, H heads, C width, V vocabulary.
#pragma once

#include <lockstep/lockstep.h>

#include <cmath>
#include <cstdint>
#include <string>

namespace lm {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct GptShape {
  std::int64_t layers = 0;
  std::int64_t heads = 0;    ///< divides width
  std::int64_t width = 0;    ///< C
  std::int64_t context = 0;  ///< the largest T
  std::int64_t vocab = 256;  ///< V
  double dropout = 0;
  bool tied = true;  ///< the table of tokens serves at both ends: Press, Wolf, arXiv 1608.05859
};

constexpr double kInitStd = 0.02;

/// A Linear layer as GPT-2 starts it.
inline nn::Linear linear(std::int64_t inputs, std::int64_t outputs, double std = kInitStd) {
  nn::Linear layer(inputs, outputs);
  nn::init::normal_(layer->weight, 0, std);
  nn::init::zeros_(layer->bias);
  return layer;
}

/// The last layer of a branch, whose output is added to the stream: the more branches, the smaller it starts,
/// so that their sum does not grow with depth.
inline nn::Linear residual_linear(const GptShape& shape, std::int64_t inputs) {
  return linear(inputs, shape.width, kInitStd / std::sqrt(2.0 * static_cast<double>(shape.layers)));
}

inline nn::Embedding embedding(std::int64_t rows, std::int64_t width) {
  nn::Embedding table(rows, width);
  nn::init::normal_(table->weight, 0, kInitStd);
  return table;
}

inline nn::LayerNorm layer_norm(std::int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

/// Causal self-attention.
struct AttentionImpl : nn::Module {
  explicit AttentionImpl(const GptShape& shape) : heads(shape.heads), dropout(shape.dropout) {
    query_key_value = register_module("query_key_value", linear(shape.width, 3 * shape.width));
    projection = register_module("projection", residual_linear(shape, shape.width));
  }

  torch::Tensor forward(const torch::Tensor& x_BTC) {
    const auto parts = query_key_value->forward(x_BTC).chunk(3, -1);
    const auto mixed_BHTD =
        at::scaled_dot_product_attention(split_heads(parts[0]), split_heads(parts[1]), split_heads(parts[2]),
                                         {}, is_training() ? dropout : 0.0, /*is_causal=*/true);
    return projection->forward(mixed_BHTD.transpose(1, 2).flatten(2));
  }

  torch::Tensor split_heads(const torch::Tensor& x_BTC) const {
    return x_BTC.unflatten(-1, {heads, -1}).transpose(1, 2);
  }

  std::int64_t heads;
  double dropout;
  nn::Linear query_key_value{nullptr}, projection{nullptr};
};
TORCH_MODULE(Attention);

/// The part of a block that looks at each token by itself.
struct MlpImpl : nn::Module {
  explicit MlpImpl(const GptShape& shape) {
    expand = register_module("expand", linear(shape.width, 4 * shape.width));
    contract = register_module("contract", residual_linear(shape, 4 * shape.width));
  }

  torch::Tensor forward(const torch::Tensor& x_BTC) {
    return contract->forward(at::gelu(expand->forward(x_BTC), "tanh"));
  }

  nn::Linear expand{nullptr}, contract{nullptr};
};
TORCH_MODULE(Mlp);

/// Both, each behind a LayerNorm, added to what comes in (pre-norm).
struct BlockImpl : nn::Module {
  explicit BlockImpl(const GptShape& shape) : dropout(shape.dropout) {
    attention_norm = register_module("attention_norm", layer_norm(shape.width));
    attention = register_module("attention", Attention(shape));
    mlp_norm = register_module("mlp_norm", layer_norm(shape.width));
    mlp = register_module("mlp", Mlp(shape));
  }

  torch::Tensor forward(const torch::Tensor& x_BTC) {
    const auto mixed = x_BTC + drop(attention->forward(attention_norm->forward(x_BTC)));
    return mixed + drop(mlp->forward(mlp_norm->forward(mixed)));
  }

  torch::Tensor drop(const torch::Tensor& x) const { return at::dropout(x, dropout, is_training()); }

  double dropout;
  nn::LayerNorm attention_norm{nullptr}, mlp_norm{nullptr};
  Attention attention{nullptr};
  Mlp mlp{nullptr};
};
TORCH_MODULE(Block);

struct GptImpl : nn::Module {
  explicit GptImpl(const GptShape& shape) : dropout(shape.dropout) {
    token_embedding = register_module("token_embedding", embedding(shape.vocab, shape.width));
    position_embedding = register_module("position_embedding", embedding(shape.context, shape.width));
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) blocks->push_back(Block(shape));
    register_module("blocks", blocks);
    norm = register_module("norm", layer_norm(shape.width));
    if (!shape.tied)
      own_head = register_parameter("head", embedding(shape.vocab, shape.width)->weight.detach());
  }

  /// What the blocks make of `tokens_BT`, int64 with T <= context.
  torch::Tensor features(const torch::Tensor& tokens_BT) {
    const auto positions = torch::arange(tokens_BT.size(1), tokens_BT.options());
    const auto x_BTC = token_embedding->forward(tokens_BT) + position_embedding->forward(positions);
    return norm->forward(blocks->forward(at::dropout(x_BTC, dropout, is_training())));
  }

  /// Scores of the next token.
  torch::Tensor head(const torch::Tensor& x_BTC) {
    return F::linear(x_BTC, own_head.defined() ? own_head : token_embedding->weight);
  }

  torch::Tensor forward(const torch::Tensor& tokens_BT) { return head(features(tokens_BT)); }

  double dropout;
  nn::Embedding token_embedding{nullptr}, position_embedding{nullptr};
  nn::Sequential blocks;
  nn::LayerNorm norm{nullptr};
  torch::Tensor own_head;  // where it is not tied
};
TORCH_MODULE(Gpt);

/// The mean of -log p(target) in nats per token.
inline torch::Tensor next_token_loss(const torch::Tensor& scores_BTV, const torch::Tensor& target_BT) {
  return lockstep::cross_entropy(scores_BTV.flatten(0, 1), target_BT.flatten());
}

}  // namespace lm
