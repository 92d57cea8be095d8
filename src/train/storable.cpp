#include "train/storable.h"

#include <string>

#include <lockstep/base/error.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

#include "state/shared_elements.h"

namespace lockstep::detail {
namespace {

bool has_stored_type(const at::Tensor& tensor) try {
  (void)safetensors_dtype(tensor.scalar_type());
  return true;
} catch (const CheckpointError&) {
  return false;
}

void require_storable(const char* kind, const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const bool is_dense = tensor.layout() == at::kStrided && !tensor.is_quantized();
  if (is_dense && has_stored_type(tensor) && !has_shared_elements(tensor)) return;
  throw ConfigError(
      "train", {.what = kind + (" " + name) + " cannot be saved in a checkpoint",
                .expected = "a dense tensor of a type that safetensors files have, whose elements lie apart",
                .got = c10::str(tensor.scalar_type(), ", ", tensor.layout(),
                                is_dense && has_shared_elements(tensor) ? " with shared elements" : ""),
                .hint = "hold it as another type or dense, as a member that is not registered, or set "
                        "enable_checkpointing = false"});
}

}  // namespace

void require_storable(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) require_storable("parameter", item.key(), item.value());
  for (const auto& item : module.named_buffers()) require_storable("buffer", item.key(), item.value());
}

}  // namespace lockstep::detail
