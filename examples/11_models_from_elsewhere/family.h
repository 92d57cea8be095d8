// The kinds of models that are known here, by the model_type of config.json.
#pragma once

#include <lockstep/lockstep.h>

#include <cstdint>
#include <filesystem>
#include <functional>

#include "model_config.h"

namespace elsewhere {

/// A model as the rest of the program sees it.
struct Family {
  std::function<torch::nn::AnyModule()> make;  ///< the network, not yet with the folder's weights
  ls::WeightNames names;                       ///< between the folder and the network
  bool is_language_model = true;               ///< else a classifier of images
  std::int64_t vocab = 0, context = 0;         ///< of a language model: tokens that there are, of a sample
  std::int64_t channels = 0, image = 0;        ///< of a classifier: pixels of a side
  std::int64_t classes = 0;
};

/// What the folder's config.json describes.
/// @throws ConfigError naming file and key: a model_type that is not known here, a key that is missing or
///   means something that the modules do not compute
Family family_of(const std::filesystem::path& folder);

/// Samples that the network takes, from a safetensors file with what transformers calls `input_ids`, int64
/// [N, T], or `pixel_values`, float [N, channels, image, image], and `labels`, int64 [N], which only training
/// needs.
struct Samples {
  /// @throws DataError naming the file and what does not fit the network
  Samples(const Family& family, const std::filesystem::path& file);

  /// Whole samples for predictions.
  ls::DatasetPtr<ls::Example> to_predict() const { return ls::tensor_dataset(inputs); }
  /// For training: with the next token of each token, or the class. @throws DataError without any
  ls::DatasetPtr<ls::Example> to_train() const;

  std::filesystem::path file;
  bool is_text;
  at::Tensor inputs, labels;
};

}  // namespace elsewhere
