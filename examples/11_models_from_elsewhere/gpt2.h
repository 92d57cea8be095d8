// GPT-2: tokens in, scores of the next token out. Radford et al., Language Models are Unsupervised Multitask
// Learners (2019). Letters of shapes: B batch, T tokens of a sample, H heads, C width, V vocabulary.
#pragma once

#include <lockstep/lockstep.h>

#include <cstdint>
#include <string>

#include "model_config.h"

namespace elsewhere {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct Gpt2Shape {
  explicit Gpt2Shape(const ModelConfig& config)
      : vocab(config.size("vocab_size")),
        context(config.size("n_positions")),
        width(config.size("n_embd")),
        layers(config.size("n_layer")),
        heads(config.size("n_head")),
        inner(config.size("n_inner", 4 * width)),
        epsilon(config.number("layer_norm_epsilon", 1e-5)),
        is_exact_gelu(config.one_of("activation_function", "gelu_new",
                                    {"gelu_new", "gelu_pytorch_tanh", "gelu"}) == "gelu"),
        is_tied(config.flag("tie_word_embeddings", true)),
        embedding_dropout(config.number("embd_pdrop", 0.1)),
        attention_dropout(config.number("attn_pdrop", 0.1)),
        residual_dropout(config.number("resid_pdrop", 0.1)) {
    config.require_multiple("n_embd", width, "n_head", heads);
    config.require_flag("scale_attn_weights", true);
    config.require_flag("scale_attn_by_inverse_layer_idx", false);
    config.require_flag("add_cross_attention", false);
  }

  std::int64_t vocab, context, width, layers, heads, inner;
  double epsilon;
  bool is_exact_gelu;  ///< else its approximation by tanh
  bool is_tied;        ///< the table of tokens serves at both ends
  double embedding_dropout, attention_dropout, residual_dropout;
};

struct Gpt2AttentionImpl : nn::Module {
  explicit Gpt2AttentionImpl(const Gpt2Shape& shape) : heads(shape.heads), dropout(shape.attention_dropout) {
    query_key_value = register_module("query_key_value", nn::Linear(shape.width, 3 * shape.width));
    projection = register_module("projection", nn::Linear(shape.width, shape.width));
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
TORCH_MODULE(Gpt2Attention);

struct Gpt2BlockImpl : nn::Module {
  explicit Gpt2BlockImpl(const Gpt2Shape& shape)
      : gelu(shape.is_exact_gelu ? "none" : "tanh"), dropout(shape.residual_dropout) {
    const auto norm = nn::LayerNormOptions({shape.width}).eps(shape.epsilon);
    attention_norm = register_module("attention_norm", nn::LayerNorm(norm));
    attention = register_module("attention", Gpt2Attention(shape));
    mlp_norm = register_module("mlp_norm", nn::LayerNorm(norm));
    expand = register_module("expand", nn::Linear(shape.width, shape.inner));
    contract = register_module("contract", nn::Linear(shape.inner, shape.width));
  }

  torch::Tensor forward(const torch::Tensor& x_BTC) {
    const auto mixed = x_BTC + drop(attention->forward(attention_norm->forward(x_BTC)));
    const auto hidden = at::gelu(expand->forward(mlp_norm->forward(mixed)), gelu);
    return mixed + drop(contract->forward(hidden));
  }

  torch::Tensor drop(const torch::Tensor& x) const { return at::dropout(x, dropout, is_training()); }

  std::string gelu;
  double dropout;
  nn::LayerNorm attention_norm{nullptr}, mlp_norm{nullptr};
  Gpt2Attention attention{nullptr};
  nn::Linear expand{nullptr}, contract{nullptr};
};
TORCH_MODULE(Gpt2Block);

struct Gpt2Impl : nn::Module {
  explicit Gpt2Impl(const Gpt2Shape& shape) : dropout(shape.embedding_dropout) {
    tokens = register_module("tokens", nn::Embedding(shape.vocab, shape.width));
    positions = register_module("positions", nn::Embedding(shape.context, shape.width));
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) blocks->push_back(Gpt2Block(shape));
    register_module("blocks", blocks);
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({shape.width}).eps(shape.epsilon)));
    if (!shape.is_tied)
      head = register_module("head", nn::Linear(nn::LinearOptions(shape.width, shape.vocab).bias(false)));
  }

  /// `tokens_BT` are int64; returns BTV.
  torch::Tensor forward(const torch::Tensor& tokens_BT) {
    const auto places = torch::arange(tokens_BT.size(1), tokens_BT.options());
    const auto x_BTC = tokens->forward(tokens_BT) + positions->forward(places);
    const auto features_BTC = norm->forward(blocks->forward(at::dropout(x_BTC, dropout, is_training())));
    return head.is_empty() ? F::linear(features_BTC, tokens->weight) : head->forward(features_BTC);
  }

  double dropout;
  nn::Embedding tokens{nullptr}, positions{nullptr};
  nn::Sequential blocks;
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};  // empty where it is tied
};
TORCH_MODULE(Gpt2);

/// What transformers calls the tensors. Weights of its Conv1D lie the other way round than those of Linear.
/// Some folders, such as that of OpenAI's weights, have no "transformer." before the names; old ones have
/// masks of attention, too.
inline ls::WeightNames gpt2_names(bool is_tied) {
  const ls::WeightNames rows = {
      {.theirs = "wte.weight", .ours = "tokens.weight"},
      {.theirs = "wpe.weight", .ours = "positions.weight"},
      {.theirs = "h.*.ln_1.*", .ours = "blocks.*.attention_norm.*"},
      {.theirs = "h.*.attn.c_attn.weight",
       .ours = "blocks.*.attention.query_key_value.weight",
       .transpose = true},
      {.theirs = "h.*.attn.c_attn.bias", .ours = "blocks.*.attention.query_key_value.bias"},
      {.theirs = "h.*.attn.c_proj.weight", .ours = "blocks.*.attention.projection.weight", .transpose = true},
      {.theirs = "h.*.attn.c_proj.bias", .ours = "blocks.*.attention.projection.bias"},
      {.theirs = "h.*.ln_2.*", .ours = "blocks.*.mlp_norm.*"},
      {.theirs = "h.*.mlp.c_fc.weight", .ours = "blocks.*.expand.weight", .transpose = true},
      {.theirs = "h.*.mlp.c_fc.bias", .ours = "blocks.*.expand.bias"},
      {.theirs = "h.*.mlp.c_proj.weight", .ours = "blocks.*.contract.weight", .transpose = true},
      {.theirs = "h.*.mlp.c_proj.bias", .ours = "blocks.*.contract.bias"},
      {.theirs = "ln_f.*", .ours = "norm.*"},
      {.theirs = "h.*.attn.bias", .ours = ""},
      {.theirs = "h.*.attn.masked_bias", .ours = ""}};
  ls::WeightNames names = rows;  // the first row that fits counts: what is written has the prefix
  for (auto& row : names) row.theirs = "transformer." + row.theirs;
  names.insert(names.end(), rows.begin(), rows.end());
  names.push_back({.theirs = "lm_head.weight", .ours = is_tied ? "" : "head.weight"});
  return names;
}

}  // namespace elsewhere
