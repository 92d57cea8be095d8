#include "parallel/sharded/shard_memory.h"

#include <string>

#include <lockstep/torch.h>

#include "offload/heap.h"
#include "offload/mapped_memory.h"

namespace lockstep::detail {

std::shared_ptr<const StateSwap> make_swap(const DiskOffload& offload, int rank) {
  const offload::SwapOptions options{.block_size = offload.block_size,
                                     .queue_depth = offload.queue_depth,
                                     .single_submit = offload.single_submit,
                                     .overlap_events = offload.overlap_events};
  offload::validate(options);
  offload::give_back_what_is_freed();  // who offloads has no memory to spare
  auto folder = std::make_shared<const offload::SwapFolder>(
      offload::SwapFolderOptions{.directory = offload.directory, .rank = rank, .option = offload.option});
  return std::make_shared<const StateSwap>(StateSwap{.folder = std::move(folder),
                                                     .options = options,
                                                     .tile_elements = offload.tile_elements,
                                                     .buffers = offload.buffers});
}

at::Tensor ShardMemory::zeros(std::int64_t elements, at::ScalarType dtype) {
  if (!swap_ || elements == 0) return at::zeros({elements}, dtype);
  const auto bytes = static_cast<std::uint64_t>(elements) * c10::elementSize(dtype);
  const auto memory =
      std::make_shared<offload::MappedMemory>(*swap_->folder, "shard_" + std::to_string(files_++), bytes);
  return at::from_blob(
      memory->bytes().data(), {elements}, [memory](void*) {}, dtype);
}

}  // namespace lockstep::detail
