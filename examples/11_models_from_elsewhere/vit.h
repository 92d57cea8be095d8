// ViT: images in, scores of classes out. Dosovitskiy et al., An Image is Worth 16x16 Words, arXiv 2010.11929.
// Letters of shapes: B batch, P patches and the class token, H heads, C width.
#pragma once

#include <lockstep/lockstep.h>

#include <cstdint>
#include <string>

#include "model_config.h"

namespace elsewhere {

namespace nn = torch::nn;

struct VitShape {
  /// transformers writes the names of the classes, and nothing where there are two without names.
  explicit VitShape(const ModelConfig& config)
      : image(config.size("image_size")),
        patch(config.size("patch_size")),
        channels(config.size("num_channels", 3)),
        width(config.size("hidden_size")),
        inner(config.size("intermediate_size")),
        layers(config.size("num_hidden_layers")),
        heads(config.size("num_attention_heads")),
        classes(config.count("id2label", config.size("num_labels", 2))),
        epsilon(config.number("layer_norm_eps", 1e-12)),
        gelu(config.one_of("hidden_act", "gelu", {"gelu", "gelu_new", "gelu_pytorch_tanh"}) == "gelu"
                 ? "none"
                 : "tanh"),
        has_query_key_value_bias(config.flag("qkv_bias", true)),
        attention_dropout(config.number("attention_probs_dropout_prob", 0)),
        dropout(config.number("hidden_dropout_prob", 0)) {
    config.require_multiple("hidden_size", width, "num_attention_heads", heads);
    config.require_multiple("image_size", image, "patch_size", patch);
  }

  std::int64_t patches() const { return (image / patch) * (image / patch); }

  std::int64_t image, patch;  ///< pixels of a side
  std::int64_t channels, width, inner, layers, heads, classes;
  double epsilon;
  std::string gelu;
  bool has_query_key_value_bias;
  double attention_dropout, dropout;
};

struct VitAttentionImpl : nn::Module {
  explicit VitAttentionImpl(const VitShape& shape) : heads(shape.heads), dropout(shape.attention_dropout) {
    const auto options = nn::LinearOptions(shape.width, shape.width).bias(shape.has_query_key_value_bias);
    query = register_module("query", nn::Linear(options));
    key = register_module("key", nn::Linear(options));
    value = register_module("value", nn::Linear(options));
    projection = register_module("projection", nn::Linear(shape.width, shape.width));
  }

  torch::Tensor forward(const torch::Tensor& x_BPC) {
    const auto mixed_BHPD = at::scaled_dot_product_attention(
        split_heads(query->forward(x_BPC)), split_heads(key->forward(x_BPC)),
        split_heads(value->forward(x_BPC)), {}, is_training() ? dropout : 0.0);
    return projection->forward(mixed_BHPD.transpose(1, 2).flatten(2));
  }

  torch::Tensor split_heads(const torch::Tensor& x_BPC) const {
    return x_BPC.unflatten(-1, {heads, -1}).transpose(1, 2);
  }

  std::int64_t heads;
  double dropout;
  nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, projection{nullptr};
};
TORCH_MODULE(VitAttention);

struct VitBlockImpl : nn::Module {
  explicit VitBlockImpl(const VitShape& shape) : gelu(shape.gelu), dropout(shape.dropout) {
    const auto norm = nn::LayerNormOptions({shape.width}).eps(shape.epsilon);
    attention_norm = register_module("attention_norm", nn::LayerNorm(norm));
    attention = register_module("attention", VitAttention(shape));
    mlp_norm = register_module("mlp_norm", nn::LayerNorm(norm));
    expand = register_module("expand", nn::Linear(shape.width, shape.inner));
    contract = register_module("contract", nn::Linear(shape.inner, shape.width));
  }

  torch::Tensor forward(const torch::Tensor& x_BPC) {
    const auto mixed = x_BPC + drop(attention->forward(attention_norm->forward(x_BPC)));
    const auto hidden = at::gelu(expand->forward(mlp_norm->forward(mixed)), gelu);
    return mixed + drop(contract->forward(hidden));
  }

  torch::Tensor drop(const torch::Tensor& x) const { return at::dropout(x, dropout, is_training()); }

  std::string gelu;
  double dropout;
  nn::LayerNorm attention_norm{nullptr}, mlp_norm{nullptr};
  VitAttention attention{nullptr};
  nn::Linear expand{nullptr}, contract{nullptr};
};
TORCH_MODULE(VitBlock);

struct VitImpl : nn::Module {
  explicit VitImpl(const VitShape& shape) : dropout(shape.dropout) {
    class_token = register_parameter("class_token", torch::zeros({1, 1, shape.width}));
    positions = register_parameter("positions", torch::zeros({1, shape.patches() + 1, shape.width}));
    const auto patching = nn::Conv2dOptions(shape.channels, shape.width, shape.patch).stride(shape.patch);
    patches = register_module("patches", nn::Conv2d(patching));
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) blocks->push_back(VitBlock(shape));
    register_module("blocks", blocks);
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({shape.width}).eps(shape.epsilon)));
    head = register_module("head", nn::Linear(shape.width, shape.classes));
  }

  /// `images` are [B, channels, image, image]; returns [B, classes].
  torch::Tensor forward(const torch::Tensor& images) {
    const auto patches_BPC = patches->forward(images).flatten(2).transpose(1, 2);
    const auto first_B1C = class_token.expand({images.size(0), -1, -1});
    const auto x_BPC = torch::cat({first_B1C, patches_BPC}, 1) + positions;
    const auto features_BPC = norm->forward(blocks->forward(at::dropout(x_BPC, dropout, is_training())));
    return head->forward(features_BPC.select(1, 0));
  }

  double dropout;
  torch::Tensor class_token, positions;
  nn::Conv2d patches{nullptr};
  nn::Sequential blocks;
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Vit);

/// What transformers calls the tensors. Folders of the base model have a pooler, which classes do without.
inline ls::WeightNames vit_names() {
  return {
      {.theirs = "vit.embeddings.cls_token", .ours = "class_token"},
      {.theirs = "vit.embeddings.position_embeddings", .ours = "positions"},
      {.theirs = "vit.embeddings.patch_embeddings.projection.*", .ours = "patches.*"},
      {.theirs = "vit.encoder.layer.*.layernorm_before.*", .ours = "blocks.*.attention_norm.*"},
      {.theirs = "vit.encoder.layer.*.attention.attention.query.*", .ours = "blocks.*.attention.query.*"},
      {.theirs = "vit.encoder.layer.*.attention.attention.key.*", .ours = "blocks.*.attention.key.*"},
      {.theirs = "vit.encoder.layer.*.attention.attention.value.*", .ours = "blocks.*.attention.value.*"},
      {.theirs = "vit.encoder.layer.*.attention.output.dense.*", .ours = "blocks.*.attention.projection.*"},
      {.theirs = "vit.encoder.layer.*.layernorm_after.*", .ours = "blocks.*.mlp_norm.*"},
      {.theirs = "vit.encoder.layer.*.intermediate.dense.*", .ours = "blocks.*.expand.*"},
      {.theirs = "vit.encoder.layer.*.output.dense.*", .ours = "blocks.*.contract.*"},
      {.theirs = "vit.layernorm.*", .ours = "norm.*"},
      {.theirs = "classifier.*", .ours = "head.*"}};
}

}  // namespace elsewhere
