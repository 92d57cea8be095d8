#include <lockstep/checkpoint/weights.h>

#include <sstream>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

#include "checkpoint/stored_weights.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& tensor, std::string expected,
                         std::string got, std::string hint = {}) {
  throw CheckpointError("checkpoint", {.what = "weights in " + file.string() + ", tensor " + tensor,
                                       .expected = std::move(expected),
                                       .got = std::move(got),
                                       .where = "",
                                       .hint = std::move(hint)});
}

std::string described(std::string_view dtype, at::IntArrayRef shape) {
  std::ostringstream text;
  text << dtype << ' ' << shape;
  return text.str();
}

void check_fits(const std::filesystem::path& file, const std::string& name,
                const detail::StoredTensor& stored, const at::Tensor& tensor) {
  const auto expected =
      described(safetensors::dtype_name(safetensors_dtype(tensor.scalar_type())), tensor.sizes());
  const auto got = described(safetensors::dtype_name(stored.dtype), stored.shape);
  if (expected != got) refuse(file, name, expected, got);
}

}  // namespace

NamedTensors named_tensors(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& parameter : module.named_parameters())
    tensors.emplace(parameter.key(), parameter.value().detach());
  for (const auto& buffer : module.named_buffers()) tensors.emplace(buffer.key(), buffer.value());
  return tensors;
}

void write_weights(const std::filesystem::path& file, const NamedTensors& tensors) {
  std::vector<at::Tensor> contiguous;  // keeps the bytes alive while they are written
  std::vector<safetensors::TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    contiguous.push_back(tensor.detach().to(at::kCPU).contiguous());
    views.push_back(view_of(name, contiguous.back()));
  }
  safetensors::write(file, views, {{"format", "pt"}});
}

void load_weights(const std::filesystem::path& file, torch::nn::Module& module) {
  const auto weights = detail::stored_weights(file);
  const auto targets = named_tensors(module);
  for (const auto& [name, stored] : weights) {
    if (!targets.contains(name)) refuse(file, name, "a tensor of the model", "a name that it does not have");
  }
  for (const auto& [name, tensor] : targets) {
    const auto stored = weights.find(name);
    if (stored == weights.end())
      refuse(file, name, described("a tensor of", tensor.sizes()), "none of that name");
    check_fits(file, name, stored->second, tensor);
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : targets) at::Tensor(tensor).copy_(weights.at(name).read());
}

}  // namespace lockstep
