// Memory of optimizer state: tensors side by side in few allocations, every one on its own cache lines, in
// pages of their own; or in a file, of which a few parameters' at a time, a tile, are in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "offload/io_engine.h"
#include "offload/mapped_memory.h"
#include "offload/swap_file.h"
#include "offload/swap_folder.h"
#include "offload/swap_stream.h"

namespace lockstep::detail {

/// A flat CPU tensor of zeros. A large one lies in huge pages, where the system has them: an optimizer walks
/// over its state in every step, and is as fast as addresses are translated. Its memory goes back to the
/// system with it. @throws c10::OutOfMemoryError
at::Tensor zeros_in_pages(std::int64_t elements, at::ScalarType dtype);

/// Every tensor of an arena starts at a multiple of this.
inline constexpr std::int64_t kArenaAlignmentBytes = 64;

/// Elements of `dtype` that an arena of tensors in the shape of each of `like` has.
std::int64_t arena_elements(std::span<const at::Tensor> like, at::ScalarType dtype);

/// Slices of `arena`, flat, in the shape of each of `like`.
std::vector<at::Tensor> carve(const at::Tensor& arena, std::span<const at::Tensor> like);

/// Contiguous zeros in the shape of each of `like`, all in one allocation.
std::vector<at::Tensor> carve_arena(std::span<const at::Tensor> like, at::ScalarType dtype,
                                    at::Device device = at::kCPU);

}  // namespace lockstep::detail

namespace lockstep {

// Where an optimizer keeps state that is not to be in memory.

struct StateSwap {
  std::shared_ptr<const offload::SwapFolder> folder;  ///< for its files
  offload::SwapOptions options = {};                  ///< how they are read and written
  std::int64_t tile_elements = 1 << 20;  ///< of parameters whose state is in memory at once; a larger one has
                                         ///< a tile of its own
  std::size_t buffers = 3;               ///< tiles in memory: one is stepped, others are read and written
  double share = 1.0;                    ///< of the elements, the last ones; the others' state is in memory
  int ranks = 1;                         ///< that keep about as much on the same disk
  std::uint64_t other_bytes = 0;         ///< that each of them has yet to put there
};

}  // namespace lockstep

namespace lockstep::detail {

class SwappedTiles {
 public:
  /// Zeros in the shape of each of `like`, `kinds` of them each. Makes the file `name`. Blocking.
  /// @throws IoError naming the bytes needed and free where there is no room
  SwappedTiles(const StateSwap& where, const std::string& name, std::span<const at::Tensor> like,
               std::size_t kinds, at::ScalarType dtype);

  /// That of `like[member]`. It lies in the mapped file.
  const at::Tensor& tensor(std::size_t member, std::size_t kind) const { return tensors_[kind][member]; }

  /// Calls act(members, shifts) for each tile: what lies in the mapping at an address of kind k lies in a
  /// buffer shifts[k] bytes behind that, until it returns. What was written there is kept, unless tiles are
  /// only read. Blocking. @throws IoError
  using Act =
      std::function<void(std::span<const std::size_t> members, std::span<const std::ptrdiff_t> shifts)>;
  void walk(const Act& act, offload::SwapPass pass = offload::SwapPass::kUpdate);

 private:
  std::vector<std::vector<std::size_t>> tiles_;  // members by tile
  offload::SwapFile file_;
  std::shared_ptr<offload::MappedMemory> memory_;  // tensors that are kept hold it
  offload::SwapStream stream_;
  std::vector<std::vector<at::Tensor>> tensors_;  // by kind and member
};

}  // namespace lockstep::detail
