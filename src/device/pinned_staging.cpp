#include "device/pinned_staging.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <lockstep/device/torch_device.h>

#include "device/step_recording.h"

namespace lockstep::detail {
namespace {

constexpr std::int64_t kPartAlignmentBytes = 64;

}  // namespace

void PinnedStaging::to_device(const at::Tensor& from, const at::Tensor& to) {
  refuse_in_recording("a copy from memory of the host that is not page-locked");
  const at::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  if (is_under_way(from)) land_all();
  const auto source = from.view({-1}), target = to.view({-1});
  for_each_part(source.numel(), to.scalar_type(), current_stream(to.device()),
                [&](std::int64_t begin, const at::Tensor& part) {
                  part.copy_(source.narrow(0, begin, part.numel()));
                  target.narrow(0, begin, part.numel()).copy_(part, /*non_blocking=*/true);
                });
}

void PinnedStaging::to_host(const at::Tensor& from, const at::Tensor& to) {
  refuse_in_recording("a copy to memory of the host that is not page-locked");
  const at::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  const auto source = from.view({-1}), target = to.view({-1});
  for_each_part(source.numel(), from.scalar_type(), current_stream(from.device()),
                [&](std::int64_t begin, const at::Tensor& part) {
                  part.copy_(source.narrow(0, begin, part.numel()), /*non_blocking=*/true);
                  blocks_[current_].landings.push_back({part, target.narrow(0, begin, part.numel())});
                });
}

void PinnedStaging::land() {
  const std::lock_guard lock(mutex_);
  land_all();
}

void PinnedStaging::for_each_part(std::int64_t elements, at::ScalarType dtype, const c10::Stream& stream,
                                  const std::function<void(std::int64_t, const at::Tensor&)>& use) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(dtype));
  for (std::int64_t begin = 0; begin < elements;) {
    const auto room = (block_bytes_ - blocks_[current_].used) / size;
    if (room == 0) {
      turn();
      continue;
    }
    auto& block = blocks_[current_];
    if (!block.bytes.defined())
      block.bytes = at::empty({block_bytes_}, at::TensorOptions(at::kByte).pinned_memory(true));
    const auto count = std::min(room, elements - begin);
    const auto part = block.bytes.narrow(0, block.used, count * size).view(dtype);
    use(begin, part);
    if (std::ranges::find(block.streams, stream) == block.streams.end()) block.streams.push_back(stream);
    block.used += (count * size + kPartAlignmentBytes - 1) / kPartAlignmentBytes * kPartAlignmentBytes;
    begin += count;
  }
}

// The other block is waited for, and what it has brought is taken out of it.
void PinnedStaging::turn() {
  for (const auto& stream : blocks_[current_].streams) {
    c10::Event event(stream.device_type());
    event.record(stream);
    blocks_[current_].left.push_back(std::move(event));
  }
  current_ = 1 - current_;
  for (const auto& event : blocks_[current_].left) event.synchronize();
  finish(blocks_[current_]);
}

bool PinnedStaging::is_under_way(const at::Tensor& to) const {
  return std::ranges::any_of(blocks_, [&](const Block& block) {
    return std::ranges::any_of(block.landings,
                               [&](const Landing& landing) { return landing.to.is_alias_of(to); });
  });
}

// Each stream is waited for once, for both blocks.
void PinnedStaging::land_all() {
  std::vector<c10::Stream> streams;
  for (const auto& block : blocks_) {
    for (const auto& stream : block.streams)
      if (std::ranges::find(streams, stream) == streams.end()) streams.push_back(stream);
  }
  for (const auto& stream : streams) {
    c10::Event event(stream.device_type());
    event.record(stream);
    event.synchronize();
  }
  finish(blocks_[1 - current_]);
  finish(blocks_[current_]);
}

void PinnedStaging::finish(Block& block) {
  const at::NoGradGuard no_grad;
  for (const auto& [from, to] : block.landings) to.copy_(from);
  block.landings.clear();
  block.left.clear();
  block.streams.clear();
  block.used = 0;
}

}  // namespace lockstep::detail
