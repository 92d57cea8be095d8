#include "optim/pieces.h"

#include <mutex>
#include <unordered_map>

namespace lockstep::detail {
namespace {

using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

struct Pieces {
  std::mutex mutex;  // guards the rest
  std::unordered_map<const c10::TensorImpl*, Weak> known;
};

// Never destroyed: models may be static, too.
Pieces& pieces() {
  static auto* all = new Pieces;
  return *all;
}

}  // namespace

void mark_pieces(std::span<const at::Tensor> tensors) {
  auto& [mutex, known] = pieces();
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& each) { return each.second.expired(); });
  for (const auto& tensor : tensors)
    known.insert_or_assign(tensor.unsafeGetTensorImpl(), Weak(tensor.getIntrusivePtr()));
}

bool is_piece(const at::Tensor& tensor) {
  auto& [mutex, known] = pieces();
  const std::lock_guard lock(mutex);
  const auto found = known.find(tensor.unsafeGetTensorImpl());
  return found != known.end() && !found->second.expired();
}

}  // namespace lockstep::detail
