// Page-locked memory through which bytes go between a device and memory of the host that is not page-locked,
// such as mapped files.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Two blocks of such memory: one is filled while what is in the other is under way. The host waits for the
/// device where it comes back to a block that is still in use, and for nothing else. Thread-safe. Exported
/// for tests.
class LOCKSTEP_API PinnedStaging {
 public:
  static constexpr std::int64_t kBlockBytes = 16 << 20;

  /// Takes no memory before the first copy. `block_bytes`: a multiple of 64.
  explicit PinnedStaging(std::int64_t block_bytes = kBlockBytes) : block_bytes_(block_bytes) {}

  /// Copies `from`, of the host, to `to`, on a device, in the order of the current stream; both are
  /// contiguous. `from` is read before this returns, and converted on the host where it is of another type.
  void to_device(const at::Tensor& from, const at::Tensor& to);

  /// Copies `from`, on a device, to `to`, on the host, in the order of the current stream; both are
  /// contiguous. `to` has it after land(), or earlier, and is held until then.
  void to_host(const at::Tensor& from, const at::Tensor& to);

  /// Blocks until the host has all that it was sent.
  void land();

 private:
  struct Landing {
    at::Tensor from;  // in a block
    at::Tensor to;
  };
  struct Block {
    at::Tensor bytes = {};
    std::int64_t used = 0;                  // bytes
    std::vector<c10::Stream> streams = {};  // that copy
    std::vector<c10::Event> left = {};      // one for each stream, from when the other block's turn began
    std::vector<Landing> landings = {};
  };

  /// Calls use(begin, part) for consecutive parts, in the blocks, of a tensor of so many elements.
  void for_each_part(std::int64_t elements, at::ScalarType dtype, const c10::Stream& stream,
                     const std::function<void(std::int64_t begin, const at::Tensor& part)>& use);
  void turn();
  bool is_under_way(const at::Tensor& to) const;
  void land_all();
  static void finish(Block& block);

  const std::int64_t block_bytes_;
  std::mutex mutex_;  // guards all below
  std::array<Block, 2> blocks_;
  std::size_t current_ = 0;
};

}  // namespace lockstep::detail
