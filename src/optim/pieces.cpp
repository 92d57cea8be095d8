#include "optim/pieces.h"

#include <mutex>
#include <unordered_map>

namespace lockstep::detail {
namespace {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

struct Known {
  WeakTensor tensor;
  std::weak_ptr<NarrowCopy> narrow;
};

struct Pieces {
  std::mutex mutex;  // guards the rest
  std::unordered_map<const c10::TensorImpl*, Known> known;
};

// Never destroyed: models may be static, too.
Pieces& pieces() {
  static auto* all = new Pieces;
  return *all;
}

// With the mutex held; null where it is no piece.
const Known* find(const Pieces& all, const at::Tensor& tensor) {
  const auto found = all.known.find(tensor.unsafeGetTensorImpl());
  return found != all.known.end() && !found->second.tensor.expired() ? &found->second : nullptr;
}

}  // namespace

void mark_pieces(std::span<const Piece> marked) {
  auto& [mutex, known] = pieces();
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& each) { return each.second.tensor.expired(); });
  for (const auto& [elements, narrow] : marked)
    known.insert_or_assign(elements.unsafeGetTensorImpl(),
                           Known{WeakTensor(elements.getIntrusivePtr()), narrow});
}

bool is_piece(const at::Tensor& tensor) {
  auto& all = pieces();
  const std::lock_guard lock(all.mutex);
  return find(all, tensor) != nullptr;
}

std::shared_ptr<NarrowCopy> narrow_copy_of(const at::Tensor& tensor) {
  auto& all = pieces();
  const std::lock_guard lock(all.mutex);
  const auto* const known = find(all, tensor);
  return known == nullptr ? nullptr : known->narrow.lock();
}

}  // namespace lockstep::detail
