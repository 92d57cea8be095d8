#include "state/storable.h"

#include <lockstep/base/error.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

#include "state/shared_elements.h"

namespace lockstep::detail {
namespace {

bool has_bytes(at::ScalarType type) {
  try {
    (void)safetensors_dtype(type);
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

void require(const char* kind, const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  auto why = unstorable(tensor);
  if (!why && has_shared_elements(tensor))
    why = {
        .expected = "a tensor whose elements lie apart, so that they can be loaded again",
        .got = c10::str(tensor.toString(), " of sizes ", tensor.sizes(), " with strides ", tensor.strides())};
  if (!why) return;
  throw ConfigError(
      "state",
      {.what = kind + (" " + name) + " cannot be stored in a checkpoint",
       .expected = std::move(why.expected),
       .got = std::move(why.got),
       .hint = "keep it in a plain member, unregistered, and make it anew in the constructor; a Trainer "
               "with enable_checkpointing = false trains with it"});
}

}  // namespace

Unstorable unstorable(const at::Tensor& tensor) {
  const auto refused = [&](const char* expected) {
    return Unstorable{.expected = expected,
                      .got = tensor.is_nested() ? "a nested tensor" : tensor.toString()};
  };
  if (!tensor.defined()) return {.expected = "a dense tensor", .got = "an undefined tensor"};
  if (tensor.is_nested() || tensor.layout() != at::kStrided) return refused("a dense tensor");
  if (!has_bytes(tensor.scalar_type()))
    return refused("an element type that takes whole bytes, not quantised");
  return {};
}

void require_storable(const torch::nn::Module& module) {
  for (const auto& parameter : module.named_parameters())
    require("parameter", parameter.key(), parameter.value());
  for (const auto& buffer : module.named_buffers()) require("buffer", buffer.key(), buffer.value());
}

}  // namespace lockstep::detail
