// Llama, and models built like it: RMSNorm, rotary positions, grouped-query attention, SwiGLU. Touvron et
// al., arXiv 2302.13971 and 2307.09288; Su et al., RoFormer, arXiv 2104.09864; Ainslie et al., GQA, arXiv
// 2305.13245. Letters of shapes: B batch, T tokens of a sample, H heads, D width of a head, C width, V
// vocabulary.
#pragma once

#include <lockstep/lockstep.h>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

#include "model_config.h"

namespace elsewhere {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

/// How fast the pairs of a head turn from token to token.
struct RotaryShape {
  /// transformers 5 has all in "rope_parameters"; before, "rope_theta" was beside "rope_scaling".
  explicit RotaryShape(const ModelConfig& config)
      : RotaryShape(config,
                    config.object(config.has("rope_parameters") ? "rope_parameters" : "rope_scaling")) {}

  RotaryShape(const ModelConfig& config, const ModelConfig& scaling)
      : theta(scaling.number("rope_theta", config.number("rope_theta", 10000))),
        type(scaling.one_of(scaling.has("rope_type") ? "rope_type" : "type", "default",
                            {"default", "linear", "llama3"})),
        factor(scaling.number("factor", 1)),
        low_frequency_factor(scaling.number("low_freq_factor", 1)),
        high_frequency_factor(scaling.number("high_freq_factor", 4)),
        original_context(scaling.number("original_max_position_embeddings", 8192)) {}

  double theta;
  std::string type;
  double factor, low_frequency_factor, high_frequency_factor, original_context;
};

struct LlamaShape {
  explicit LlamaShape(const ModelConfig& config)
      : vocab(config.size("vocab_size")),
        context(config.size("max_position_embeddings", 2048)),
        width(config.size("hidden_size")),
        inner(config.size("intermediate_size")),
        layers(config.size("num_hidden_layers")),
        heads(config.size("num_attention_heads")),
        key_value_heads(config.size("num_key_value_heads", heads)),
        head_width(config.size("head_dim", std::max<std::int64_t>(1, width / heads))),
        epsilon(config.number("rms_norm_eps", 1e-6)),
        has_attention_bias(config.flag("attention_bias", false)),
        has_mlp_bias(config.flag("mlp_bias", false)),
        is_tied(config.flag("tie_word_embeddings", false)),
        attention_dropout(config.number("attention_dropout", 0)),
        rotary(config) {
    config.require_multiple("hidden_size", width, "num_attention_heads", heads);
    config.require_multiple("num_attention_heads", heads, "num_key_value_heads", key_value_heads);
    if (head_width % 2 != 0) config.refuse("head_dim", "an even number", std::to_string(head_width));
    config.one_of("hidden_act", "silu", {"silu"});
  }

  std::int64_t vocab, context, width, inner, layers, heads, key_value_heads, head_width;
  double epsilon;
  bool has_attention_bias, has_mlp_bias;
  bool is_tied;  ///< the table of tokens serves at both ends
  double attention_dropout;
  RotaryShape rotary;
};

/// The angles by which one token turns the pairs of a head, [D/2].
inline torch::Tensor rotary_frequencies(const RotaryShape& shape, std::int64_t head_width) {
  const auto steps = torch::arange(0, head_width, 2, torch::kFloat) / static_cast<double>(head_width);
  const auto plain = 1 / torch::pow(shape.theta, steps);
  if (shape.type == "default") return plain;
  const auto slow = plain / shape.factor;
  if (shape.type == "linear") return slow;
  // llama3: slow where a wave is longer than the original context, plain where it is short, mixed in between.
  const auto waves = shape.original_context * plain / (2 * std::numbers::pi);  // within that context
  const auto share =
      (waves - shape.low_frequency_factor) / (shape.high_frequency_factor - shape.low_frequency_factor);
  const auto plain_share = share.clamp(0, 1);
  return (1 - plain_share) * slow + plain_share * plain;
}

/// Cosine and sine of every token's angles, [T, D]: both halves of D have the same.
struct Rotation {
  Rotation(const RotaryShape& shape, std::int64_t head_width, const torch::Tensor& like_BTC) {
    const auto places = torch::arange(like_BTC.size(1), torch::kFloat);
    const auto half = torch::outer(places, rotary_frequencies(shape, head_width));
    const auto angles = torch::cat({half, half}, -1);
    cos_TD = angles.cos().to(like_BTC.options());
    sin_TD = angles.sin().to(like_BTC.options());
  }

  /// Turns pair i of a head, which is its numbers i and i + D/2.
  torch::Tensor turn(const torch::Tensor& x_BHTD) const {
    const auto halves = x_BHTD.chunk(2, -1);
    return x_BHTD * cos_TD + torch::cat({-halves[1], halves[0]}, -1) * sin_TD;
  }

  torch::Tensor cos_TD, sin_TD;
};

/// Divides by the root of the mean square, which is taken in float32.
struct RmsNormImpl : nn::Module {
  RmsNormImpl(std::int64_t width, double eps) : epsilon(eps) {
    weight = register_parameter("weight", torch::ones({width}));
  }

  torch::Tensor forward(const torch::Tensor& x_BTC) {
    const auto wide = x_BTC.to(torch::kFloat);
    const auto normed = wide * torch::rsqrt(wide.pow(2).mean(-1, /*keepdim=*/true) + epsilon);
    return weight * normed.to(x_BTC.scalar_type());
  }

  double epsilon;
  torch::Tensor weight;
};
TORCH_MODULE(RmsNorm);

/// Several heads of queries share one of keys and values.
struct LlamaAttentionImpl : nn::Module {
  explicit LlamaAttentionImpl(const LlamaShape& shape)
      : head_width(shape.head_width), dropout(shape.attention_dropout) {
    const auto linear = [&](std::int64_t inputs, std::int64_t outputs) {
      return nn::Linear(nn::LinearOptions(inputs, outputs).bias(shape.has_attention_bias));
    };
    const auto all = shape.heads * head_width, shared = shape.key_value_heads * head_width;
    query = register_module("query", linear(shape.width, all));
    key = register_module("key", linear(shape.width, shared));
    value = register_module("value", linear(shape.width, shared));
    projection = register_module("projection", linear(all, shape.width));
  }

  torch::Tensor forward(const torch::Tensor& x_BTC, const Rotation& rotation) {
    const auto q = rotation.turn(split_heads(query->forward(x_BTC)));
    const auto k = rotation.turn(split_heads(key->forward(x_BTC)));
    const auto v = split_heads(value->forward(x_BTC));
    const auto mixed_BHTD =
        at::scaled_dot_product_attention(q, k, v, {}, is_training() ? dropout : 0.0, /*is_causal=*/true,
                                         /*scale=*/std::nullopt, /*enable_gqa=*/q.size(1) != k.size(1));
    return projection->forward(mixed_BHTD.transpose(1, 2).flatten(2));
  }

  torch::Tensor split_heads(const torch::Tensor& x_BTC) const {
    return x_BTC.unflatten(-1, {-1, head_width}).transpose(1, 2);
  }

  std::int64_t head_width;
  double dropout;
  nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, projection{nullptr};
};
TORCH_MODULE(LlamaAttention);

/// SwiGLU. Shazeer, arXiv 2002.05202.
struct LlamaMlpImpl : nn::Module {
  explicit LlamaMlpImpl(const LlamaShape& shape) {
    const auto linear = [&](std::int64_t inputs, std::int64_t outputs) {
      return nn::Linear(nn::LinearOptions(inputs, outputs).bias(shape.has_mlp_bias));
    };
    gate = register_module("gate", linear(shape.width, shape.inner));
    expand = register_module("expand", linear(shape.width, shape.inner));
    contract = register_module("contract", linear(shape.inner, shape.width));
  }

  torch::Tensor forward(const torch::Tensor& x_BTC) {
    return contract->forward(at::silu(gate->forward(x_BTC)) * expand->forward(x_BTC));
  }

  nn::Linear gate{nullptr}, expand{nullptr}, contract{nullptr};
};
TORCH_MODULE(LlamaMlp);

struct LlamaBlockImpl : nn::Module {
  explicit LlamaBlockImpl(const LlamaShape& shape) {
    attention_norm = register_module("attention_norm", RmsNorm(shape.width, shape.epsilon));
    attention = register_module("attention", LlamaAttention(shape));
    mlp_norm = register_module("mlp_norm", RmsNorm(shape.width, shape.epsilon));
    mlp = register_module("mlp", LlamaMlp(shape));
  }

  torch::Tensor forward(const torch::Tensor& x_BTC, const Rotation& rotation) {
    const auto mixed = x_BTC + attention->forward(attention_norm->forward(x_BTC), rotation);
    return mixed + mlp->forward(mlp_norm->forward(mixed));
  }

  RmsNorm attention_norm{nullptr}, mlp_norm{nullptr};
  LlamaAttention attention{nullptr};
  LlamaMlp mlp{nullptr};
};
TORCH_MODULE(LlamaBlock);

struct LlamaImpl : nn::Module {
  explicit LlamaImpl(const LlamaShape& shape) : rotary(shape.rotary), head_width(shape.head_width) {
    tokens = register_module("tokens", nn::Embedding(shape.vocab, shape.width));
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) blocks->push_back(LlamaBlock(shape));
    register_module("blocks", blocks);
    norm = register_module("norm", RmsNorm(shape.width, shape.epsilon));
    if (!shape.is_tied)
      head = register_module("head", nn::Linear(nn::LinearOptions(shape.width, shape.vocab).bias(false)));
  }

  /// `tokens_BT` are int64; returns BTV.
  torch::Tensor forward(const torch::Tensor& tokens_BT) {
    auto x_BTC = tokens->forward(tokens_BT);
    const Rotation rotation(rotary, head_width, x_BTC);
    for (const auto& block : *blocks) x_BTC = block->as<LlamaBlock>()->forward(x_BTC, rotation);
    const auto features_BTC = norm->forward(x_BTC);
    return head.is_empty() ? F::linear(features_BTC, tokens->weight) : head->forward(features_BTC);
  }

  RotaryShape rotary;
  std::int64_t head_width;
  nn::Embedding tokens{nullptr};
  nn::ModuleList blocks;
  RmsNorm norm{nullptr};
  nn::Linear head{nullptr};  // empty where it is tied
};
TORCH_MODULE(Llama);

/// What transformers calls the tensors. Old folders have the rotary frequencies, too, which are computed.
inline ls::WeightNames llama_names(bool is_tied) {
  return {{.theirs = "model.embed_tokens.weight", .ours = "tokens.weight"},
          {.theirs = "model.layers.*.input_layernorm.weight", .ours = "blocks.*.attention_norm.weight"},
          {.theirs = "model.layers.*.self_attn.q_proj.*", .ours = "blocks.*.attention.query.*"},
          {.theirs = "model.layers.*.self_attn.k_proj.*", .ours = "blocks.*.attention.key.*"},
          {.theirs = "model.layers.*.self_attn.v_proj.*", .ours = "blocks.*.attention.value.*"},
          {.theirs = "model.layers.*.self_attn.o_proj.*", .ours = "blocks.*.attention.projection.*"},
          {.theirs = "model.layers.*.post_attention_layernorm.weight", .ours = "blocks.*.mlp_norm.weight"},
          {.theirs = "model.layers.*.mlp.gate_proj.*", .ours = "blocks.*.mlp.gate.*"},
          {.theirs = "model.layers.*.mlp.up_proj.*", .ours = "blocks.*.mlp.expand.*"},
          {.theirs = "model.layers.*.mlp.down_proj.*", .ours = "blocks.*.mlp.contract.*"},
          {.theirs = "model.norm.weight", .ours = "norm.weight"},
          {.theirs = "model.layers.*.self_attn.rotary_emb.inv_freq", .ours = ""},
          {.theirs = "lm_head.weight", .ours = is_tied ? "" : "head.weight"}};
}

}  // namespace elsewhere
