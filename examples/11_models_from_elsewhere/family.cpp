#include "family.h"

#include <string>

#include "gpt2.h"
#include "llama.h"
#include "vit.h"

namespace elsewhere {

namespace {

template <class Network, class Shape>
std::function<nn::AnyModule()> maker_of(const Shape& shape) {
  return [shape] { return nn::AnyModule(Network(shape)); };
}

Family gpt2(const ModelConfig& config) {
  const Gpt2Shape shape(config);
  return {.make = maker_of<Gpt2>(shape),
          .names = gpt2_names(shape.is_tied),
          .vocab = shape.vocab,
          .context = shape.context};
}

Family llama(const ModelConfig& config) {
  const LlamaShape shape(config);
  return {.make = maker_of<Llama>(shape),
          .names = llama_names(shape.is_tied),
          .vocab = shape.vocab,
          .context = shape.context};
}

Family vit(const ModelConfig& config) {
  const VitShape shape(config);
  return {.make = maker_of<Vit>(shape),
          .names = vit_names(),
          .is_language_model = false,
          .channels = shape.channels,
          .image = shape.image,
          .classes = shape.classes};
}

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& what,
                         const std::string& expected, const std::string& got) {
  throw ls::DataError("data", {.what = "'" + file.string() + "': " + what, .expected = expected, .got = got});
}

std::string kind_of(const at::Tensor& tensor) {
  return tensor.defined() ? c10::str(tensor.scalar_type(), ' ', tensor.sizes()) : "no such tensor";
}

bool is_within(const at::Tensor& numbers, std::int64_t end) {
  return numbers.numel() == 0 ||
         (numbers.min().item<std::int64_t>() >= 0 && numbers.max().item<std::int64_t>() < end);
}

void check_tokens(const Samples& samples, const Family& family) {
  const auto& ids = samples.inputs;
  if (!ids.defined() || ids.dim() != 2 || ids.scalar_type() != at::kLong || ids.size(0) == 0 ||
      ids.size(1) == 0 || ids.size(1) > family.context)
    refuse(samples.file, "input_ids", "int64 [samples, up to " + std::to_string(family.context) + " tokens]",
           kind_of(ids));
  if (!is_within(ids, family.vocab))
    refuse(samples.file, "input_ids", "tokens from 0 to " + std::to_string(family.vocab - 1),
           std::to_string(ids.min().item<std::int64_t>()) + " to " +
               std::to_string(ids.max().item<std::int64_t>()));
}

void check_images(const Samples& samples, const Family& family) {
  const auto& images = samples.inputs;
  const bool fits = images.defined() && images.dim() == 4 && images.is_floating_point() &&
                    images.size(0) > 0 && images.size(1) == family.channels &&
                    images.size(2) == family.image && images.size(3) == family.image;
  if (!fits)
    refuse(samples.file, "pixel_values",
           c10::str("numbers [images, ", family.channels, ", ", family.image, ", ", family.image, "]"),
           kind_of(images));
  const auto& labels = samples.labels;
  if (!labels.defined()) return;
  if (labels.dim() != 1 || labels.scalar_type() != at::kLong || labels.size(0) != images.size(0) ||
      !is_within(labels, family.classes))
    refuse(samples.file, "labels", c10::str("int64 [", images.size(0), "] from 0 to ", family.classes - 1),
           kind_of(labels));
}

}  // namespace

Family family_of(const std::filesystem::path& folder) {
  const ModelConfig config(folder);
  config.text("model_type");
  const auto type = config.one_of("model_type", "", {"gpt2", "llama", "vit"});
  if (type == "gpt2") return gpt2(config);
  return type == "llama" ? llama(config) : vit(config);
}

Samples::Samples(const Family& family, const std::filesystem::path& from)
    : file(from), is_text(family.is_language_model) {
  auto tensors = ls::read_weights(file);
  inputs = tensors[is_text ? "input_ids" : "pixel_values"];
  labels = tensors["labels"];
  is_text ? check_tokens(*this, family) : check_images(*this, family);
  if (!is_text) inputs = inputs.to(at::kFloat);
}

ls::DatasetPtr<ls::Example> Samples::to_train() const {
  if (is_text && inputs.size(1) < 2)
    refuse(file, "input_ids", "two tokens of a sample or more, each but the last one with a next one", "1");
  if (is_text) return ls::tensor_dataset(inputs.slice(1, 0, -1), inputs.slice(1, 1));
  if (!labels.defined()) refuse(file, "labels", "the class of each image, to learn it", "no such tensor");
  return ls::tensor_dataset(inputs, labels);
}

}  // namespace elsewhere
