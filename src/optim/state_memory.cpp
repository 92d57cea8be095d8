// Memory of optimizer state: arenas in pages of their own, and tiles in a file.
#include "optim/state_memory.h"

#include <memory>
#include <new>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "offload/io_engine.h"

namespace lockstep::detail {
namespace {

// Of a huge page. What is smaller would share one with others.
constexpr std::uint64_t kLargeBytes = 2 << 20;

std::shared_ptr<offload::AlignedBuffer> pages(std::uint64_t bytes) {
  try {
    return std::make_shared<offload::AlignedBuffer>(bytes);
  } catch (const std::bad_alloc&) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "not enough memory for a tensor of ", bytes, " bytes");
  }
}

}  // namespace

at::Tensor zeros_in_pages(std::int64_t elements, at::ScalarType dtype) {
  const auto bytes = static_cast<std::uint64_t>(elements) * c10::elementSize(dtype);
  if (bytes < kLargeBytes) return at::zeros({elements}, dtype);
  const auto memory = pages(bytes);
  return at::from_blob(
      memory->bytes().data(), {elements}, [memory](void*) {}, dtype);
}

namespace {

std::int64_t with_alignment(const at::Tensor& tensor, at::ScalarType dtype) {
  const auto alignment = kArenaAlignmentBytes / static_cast<std::int64_t>(c10::elementSize(dtype));
  return (tensor.numel() + alignment - 1) / alignment * alignment;
}

}  // namespace

std::int64_t arena_elements(std::span<const at::Tensor> like, at::ScalarType dtype) {
  std::int64_t elements = 0;
  for (const auto& tensor : like) elements += with_alignment(tensor, dtype);
  return elements;
}

std::vector<at::Tensor> carve(const at::Tensor& arena, std::span<const at::Tensor> like) {
  std::vector<at::Tensor> slices;
  std::int64_t start = 0;
  for (const auto& tensor : like) {
    slices.push_back(arena.narrow(0, start, tensor.numel()).view(tensor.sizes()));
    start += with_alignment(tensor, arena.scalar_type());
  }
  return slices;
}

std::vector<at::Tensor> carve_arena(std::span<const at::Tensor> like, at::ScalarType dtype,
                                    at::Device device) {
  const auto elements = arena_elements(like, dtype);
  if (device.is_cpu()) return carve(zeros_in_pages(elements, dtype), like);
  return carve(at::zeros({elements}, at::TensorOptions(device).dtype(dtype)), like);
}

namespace {

using Members = std::vector<std::size_t>;

std::vector<Members> tiles_of(std::span<const at::Tensor> like, std::int64_t most_elements) {
  std::vector<Members> tiles;
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < like.size(); ++i) {
    if (tiles.empty() || elements + like[i].numel() > most_elements) {
      tiles.emplace_back();
      elements = 0;
    }
    tiles.back().push_back(i);
    elements += like[i].numel();
  }
  return tiles;
}

std::vector<at::Tensor> chosen(std::span<const at::Tensor> like, const Members& members) {
  std::vector<at::Tensor> tensors;
  for (const auto member : members) tensors.push_back(like[member]);
  return tensors;
}

offload::SwapLayout layout_of(std::span<const at::Tensor> like, const std::vector<Members>& tiles,
                              std::size_t kinds, at::ScalarType dtype) {
  offload::SwapLayout layout;
  for (const auto& tile : tiles) {
    const auto elements = arena_elements(chosen(like, tile), dtype);
    const auto bytes = static_cast<std::uint64_t>(elements) * c10::elementSize(dtype);
    layout.add(std::vector<std::uint64_t>(kinds, bytes));
  }
  return layout;
}

}  // namespace

SwappedTiles::SwappedTiles(const StateSwap& where, const std::string& name, std::span<const at::Tensor> like,
                           std::size_t kinds, at::ScalarType dtype)
    : tiles_(tiles_of(like, where.tile_elements)),
      file_(*where.folder, name, layout_of(like, tiles_, kinds, dtype).bytes(), where.options),
      memory_(std::make_shared<offload::MappedMemory>(file_)),
      stream_(file_, layout_of(like, tiles_, kinds, dtype), where.buffers),
      tensors_(kinds, std::vector<at::Tensor>(like.size())) {
  for (std::size_t tile = 0; tile < tiles_.size(); ++tile) {
    const auto& region = stream_.layout().regions()[tile];
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      const auto part =
          memory_->bytes().subspan(region.offset + region.parts[kind].offset, region.parts[kind].bytes);
      const auto elements = static_cast<std::int64_t>(part.size() / c10::elementSize(dtype));
      const auto all = at::from_blob(
          part.data(), {elements}, [memory = memory_](void*) {}, dtype);
      const auto slices = carve(all, chosen(like, tiles_[tile]));
      for (std::size_t i = 0; i < slices.size(); ++i) tensors_[kind][tiles_[tile][i]] = slices[i];
    }
  }
}

void SwappedTiles::walk(const Act& act, offload::SwapPass pass) {
  std::vector<std::ptrdiff_t> shifts(tensors_.size());
  const auto step = [&](std::size_t tile, std::span<const std::span<std::byte>> parts) {
    const auto& region = stream_.layout().regions()[tile];
    for (std::size_t kind = 0; kind < parts.size(); ++kind) {
      const auto* const mapped = memory_->bytes().data() + region.offset + region.parts[kind].offset;
      shifts[kind] = parts[kind].data() - mapped;
    }
    act(tiles_[tile], shifts);
  };
  stream_.run(step, pass);
}

}  // namespace lockstep::detail
