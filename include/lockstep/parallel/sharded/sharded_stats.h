// What a ShardedEngine has done so far.
#pragma once

#include <cstdint>

namespace lockstep {

/// Counts since the engine was made.
struct ShardedStats {
  std::int64_t gathers = 0;              ///< units that were gathered
  std::int64_t prefetched_gathers = 0;   ///< of these, those that had begun when the unit was used
  std::int64_t gathered_bytes = 0;       ///< bytes of whole units that gathers put together
  std::int64_t reductions = 0;           ///< reduce-scatters (or all-reduces) of a unit's gradients
  std::int64_t reduced_bytes = 0;        ///< bytes of whole units that they took in
  std::int64_t shard_bytes = 0;          ///< parameters that this rank keeps
  std::int64_t narrow_bytes = 0;         ///< the same in 16 bits beside them, which gathers start from
  std::int64_t kept_row_bytes = 0;       ///< whole units that stay from step to step, with the shards in them
  std::int64_t gradient_bytes = 0;       ///< averaged gradients that lie on them now
  std::int64_t bytes_sent = 0;           ///< payload that this rank handed to others for all of these
  std::int64_t peak_gathered_bytes = 0;  ///< most bytes in buffers for gathering and reducing at once
  std::int64_t buffer_bytes = 0;         ///< bytes in such buffers now, with those that wait for the next use

  // Of ZeRO++, see ZeroPlusPlus.
  std::int64_t secondary_bytes = 0;              ///< parameters that this rank keeps for its neighbours, too
  std::int64_t secondary_gathered_bytes = 0;     ///< of gathered_bytes, those that neighbours had
  std::int64_t gather_bytes_sent = 0;            ///< of bytes_sent, in gathers among all that hold shards
  std::int64_t secondary_gather_bytes_sent = 0;  ///< of bytes_sent, in gathers among neighbours
  std::int64_t far_reduction_bytes_sent = 0;     ///< of bytes_sent, sums of neighbours' quantised gradients
};

}  // namespace lockstep
