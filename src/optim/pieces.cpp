#include "optim/pieces.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "optim/segments.h"

namespace lockstep::detail {

NarrowElements elements_of(const NarrowCopy& copy) {
  const bool is_bfloat16 = copy.elements.scalar_type() == at::kBFloat16;
  return {.elements = copy.elements.data_ptr(),
          .type = is_bfloat16 ? NarrowType::kBFloat16 : NarrowType::kFloat16};
}

void convert(const at::Tensor& original, const NarrowCopy& copy) {
  if (!original.is_cpu()) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    copy.elements.copy_(original);
    return;
  }
  constexpr std::int64_t kElementsAtATime = 32768;
  const auto size = original.numel();
  const auto to = elements_of(copy);
  const auto* const from = original.const_data_ptr<float>();
  const auto convert_part = [&, isa = best_isa()](std::size_t part) {
    const auto begin = static_cast<std::int64_t>(part) * kElementsAtATime;
    narrow(from, to, begin, std::min(size, begin + kElementsAtATime), isa);
  };
  if (size <= kElementsAtATime) return convert_part(0);
  parallel_for_each(static_cast<std::size_t>((size + kElementsAtATime - 1) / kElementsAtATime), convert_part);
}

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
