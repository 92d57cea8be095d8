// What a DdpEngine knows about itself: buckets, and times of sampled steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// As DistributedDataParallel._get_ddp_logging_data(), names included. Times are those of the first ten
/// averaged backward passes and of every hundredth; averages are over these. "Forward" is all that
/// lies between after_step() and backward(), since a module without wrapper does not say when its
/// forward begins: loading data and local backward passes count. There are no buckets and times in a world
/// of one, and with static_graph none before the first averaged backward.
struct DdpLoggingData {
  int rank = 0;
  int world_size = 1;
  std::int64_t iteration = 0;  ///< averaged backward passes when the times were taken last
  std::int64_t num_parameter_tensors = 0;
  std::int64_t total_parameter_size_bytes = 0;
  std::int64_t unused_parameter_size = 0;  ///< bytes of parameters that the last one did not use
  std::int64_t bucket_cap_bytes = 0;
  std::string comm_hook = {};                           ///< name of the built-in hook, or "custom"
  std::vector<std::int64_t> bucket_sizes = {};          ///< bytes, as planned before the first backward
  bool has_rebuilt_buckets = false;                     ///< whether the following holds
  std::vector<std::int64_t> rebuilt_bucket_sizes = {};  ///< bytes, in the order of gradients
  std::vector<std::string> prev_iteration_grad_ready_order = {};  ///< parameters, first gradient first
  bool can_set_static_graph = false;  ///< with find_unused_parameters: no backward differed from the others
  bool join_uneven_inputs = false;    ///< whether a Join was ever used
  std::chrono::nanoseconds forward_compute_time{};
  std::chrono::nanoseconds backward_compute_time{};
  std::chrono::nanoseconds backward_comm_time{};                  ///< first bucket issued to last one done
  std::chrono::nanoseconds backward_compute_comm_overlap_time{};  ///< of the two above
  std::chrono::nanoseconds avg_forward_compute_time{};
  std::chrono::nanoseconds avg_backward_compute_time{};
  std::chrono::nanoseconds avg_backward_comm_time{};
  std::chrono::nanoseconds avg_backward_compute_comm_overlap_time{};
};

}  // namespace lockstep
