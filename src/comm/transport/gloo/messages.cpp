#include "comm/transport/gloo/messages.h"

#include <vector>

#include "comm/broken_pipes.h"

namespace lockstep::detail {

at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

// Unlike collectives, messages are written to their sockets by the thread that posts them.
Messages::Work Messages::send(const at::Tensor& tensor, int dst, int tag) {
  const BrokenPipesAreErrors guard;
  std::vector<at::Tensor> tensors{as_bytes(tensor)};
  return backend_.send(tensors, dst, tag);
}

Messages::Work Messages::recv(const at::Tensor& tensor, int src, int tag) {
  const BrokenPipesAreErrors guard;
  std::vector<at::Tensor> tensors{as_bytes(tensor)};
  return backend_.recv(tensors, src, tag);
}

}  // namespace lockstep::detail
