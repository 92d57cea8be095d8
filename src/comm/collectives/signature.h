// What ranks tell each other of a collective before they begin it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/collectives/collective.h"

namespace lockstep::detail {

/// Equal on all ranks that call the same collective. Lies in memory as it travels.
struct Signature {
  std::uint8_t kind = 0;
  std::uint8_t op = 0;
  std::int8_t dtype = -1;                  ///< at::ScalarType; -1: no tensor
  std::uint8_t dimensions = 0;             ///< of the tensor
  std::int32_t root = 0;                   ///< its rank in the job
  std::array<std::int64_t, 3> sizes = {};  ///< the first ones; the last may be a layout instead
  std::uint64_t shape_hash = 0;            ///< of all of them
};
using SignatureBytes = std::array<std::byte, 40>;
static_assert(sizeof(Signature) == sizeof(SignatureBytes));

/// `members` are the group's, by their rank in the job: roots are known to all by that.
Signature signature_of(const Collective& collective, std::span<const int> members);

/// In words: "all_reduce(sum) of float32 [4, 2]", "broadcast(root 1) of int64 [3]".
std::string describe(const Signature& signature);

/// The table's columns `bytes_moved`: where ranks may give each other different amounts, and shapes are
/// therefore no part of the signature, how many bytes this rank gives to each member, then how many it
/// expects from each.
std::vector<std::int64_t> bytes_of_all_gather_list(const Collective& collective, int rank, int size);
std::vector<std::int64_t> bytes_of_gather(const Collective& collective, int rank, int size);
std::vector<std::int64_t> bytes_of_scatter(const Collective& collective, int rank, int size);
std::vector<std::int64_t> bytes_of_all_to_all(const Collective& collective, int rank, int size);
std::vector<std::int64_t> bytes_of_all_to_all_list(const Collective& collective, int rank, int size);

}  // namespace lockstep::detail
