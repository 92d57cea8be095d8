#include "offload/swap_options.h"

#include <string>

#include <lockstep/base/error.h>

#include "offload/aligned_buffer.h"

namespace lockstep::offload {
namespace {

constexpr std::int64_t kLargestBlock = std::int64_t{1} << 30;  // what one call of the system is sure to take
constexpr std::int64_t kDeepestQueue = 4096;

[[noreturn]] void refuse(const std::string& key, const std::string& expected, std::int64_t value) {
  throw ConfigError("offload", {.what = key, .expected = expected, .got = std::to_string(value)});
}

}  // namespace

void validate(const SwapOptions& options) {
  const auto block = options.block_size;
  if (block <= 0 || block > kLargestBlock || block % static_cast<std::int64_t>(kAlignment) != 0)
    refuse("aio.block_size", "bytes, a multiple of 4096 up to 1073741824", block);
  if (options.queue_depth < 1 || options.queue_depth > kDeepestQueue)
    refuse("aio.queue_depth", "1 to 4096", options.queue_depth);
}

}  // namespace lockstep::offload
