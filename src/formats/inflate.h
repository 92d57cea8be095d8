// Raw deflate streams, as they lie in zip archives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::detail {

/// The `size` bytes that `deflated` holds, or nothing where it holds other data or another number of them. Memory
/// grows with what comes, not with `size`, which may be a lie.
std::optional<std::vector<std::byte>> inflated(std::span<const std::byte> deflated, std::uint64_t size);

}  // namespace lockstep::detail
