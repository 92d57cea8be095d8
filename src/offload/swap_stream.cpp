#include "offload/swap_stream.h"

#include <algorithm>
#include <string>
#include <utility>

#include <lockstep/base/error.h>

#include "offload/io_engine.h"
#include "offload/swap_folder.h"

namespace lockstep::offload {

std::size_t SwapLayout::add(std::span<const std::uint64_t> part_bytes) {
  SwapRegion region;
  region.offset = bytes_;
  for (const auto bytes : part_bytes) {
    region.parts.push_back({.offset = region.bytes, .bytes = bytes});
    region.bytes += aligned(bytes);
  }
  bytes_ += region.bytes;
  regions_.push_back(std::move(region));
  return regions_.size() - 1;
}

std::uint64_t SwapLayout::largest() const {
  std::uint64_t most = 0;
  for (const SwapRegion& region : regions_) most = std::max(most, region.bytes);
  return most;
}

// More buffers than regions would stay empty.
SwapStream::SwapStream(SwapFile& file, SwapLayout layout, std::size_t buffers)
    : file_(file),
      layout_(std::move(layout)),
      slots_(std::min(buffers, std::max<std::size_t>(1, layout_.regions().size()))) {
  if (buffers == 0) throw Error("offload", {.what = "buffers", .expected = "at least 1", .got = "0"});
  if (layout_.bytes() > file_.bytes())
    throw Error("offload", {.what = "swap file '" + file_.path().string() + "'",
                            .expected = byte_text(layout_.bytes()),
                            .got = byte_text(file_.bytes())});
  for (Slot& slot : slots_) slot.buffer = AlignedBuffer(layout_.largest());
}

void SwapStream::run(const Step& step, SwapPass pass) {
  try {
    walk(step, pass);
  } catch (...) {
    for (Slot& slot : slots_) slot.transfer = {};  // waits
    throw;
  }
  drain();
}

void SwapStream::walk(const Step& step, SwapPass pass) {
  const auto count = layout_.regions().size();
  const auto ahead = regions_ahead(pass);
  std::size_t next_read = pass == SwapPass::kFill ? count : 0;
  for (std::size_t region = 0; region < count; ++region) {
    for (; next_read < std::min(count, region + ahead + 1); ++next_read) begin_read(next_read);
    slot_of(region).transfer.wait();
    call(step, region);
    if (pass == SwapPass::kRead) continue;
    slot_of(region).transfer = file_.write(layout_.regions()[region].offset, bytes_of(region));
  }
}

// One buffer is worked on and, of three or more, one is being written.
std::size_t SwapStream::regions_ahead(SwapPass pass) const {
  const auto others = slots_.size() - 1;
  return pass == SwapPass::kUpdate && others > 1 ? others - 1 : others;
}

std::span<std::byte> SwapStream::bytes_of(std::size_t region) {
  return slot_of(region).buffer.bytes().first(layout_.regions()[region].bytes);
}

void SwapStream::begin_read(std::size_t region) {
  Slot& slot = slot_of(region);
  slot.transfer.wait();
  slot.transfer = file_.read(layout_.regions()[region].offset, bytes_of(region));
}

void SwapStream::call(const Step& step, std::size_t region) {
  parts_.clear();
  const auto bytes = bytes_of(region);
  for (const SwapPart& part : layout_.regions()[region].parts)
    parts_.push_back(bytes.subspan(part.offset, part.bytes));
  step(region, parts_);
}

// Waits for all transfers, even if some fail.
void SwapStream::drain() {
  std::exception_ptr first;
  for (Slot& slot : slots_) {
    try {
      slot.transfer.wait();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep::offload
