#include "optim/narrow_copy.h"

#include <algorithm>

#include "optim/parallel.h"

namespace lockstep::detail {

NarrowElements elements_of(const NarrowCopy& copy) {
  const bool is_bfloat16 = copy.elements.scalar_type() == at::kBFloat16;
  return {.elements = copy.elements.data_ptr(),
          .type = is_bfloat16 ? NarrowType::kBFloat16 : NarrowType::kFloat16};
}

void convert(const at::Tensor& original, const NarrowCopy& copy) {
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

}  // namespace lockstep::detail
