// The options of distributed data parallel training, and what an engine of it knows about itself: buckets,
// and times of sampled steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/base/options.h>
#include <lockstep/cluster/detect.h>
#include <lockstep/parallel/ddp/comm_hook.h>
#include <lockstep/parallel/joining_options.h>

namespace lockstep {

/// How gradients travel: the built-in comm hooks.
enum class DdpCommHook {
  kAllreduce,     ///< as they are
  kFp16Compress,  ///< as float16
  kBf16Compress,  ///< as bfloat16
  kPowerSgd,      ///< as a low-rank approximation, see PowerSgd
  kNoop           ///< not at all: for measuring only
};

/// What is wrapped around the comm hook.
enum class DdpCommWrapper {
  kNone,
  kFp16Compress,  ///< the hook works on float16
  kBf16Compress   ///< the hook works on bfloat16
};

LOCKSTEP_API std::span<const OptionName<DdpCommHook>> option_names(DdpCommHook);
LOCKSTEP_API std::span<const OptionName<DdpCommWrapper>> option_names(DdpCommWrapper);

/// Distributed data parallel: every rank holds the whole model and optimizer, works on its share of
/// the batch, and gradients are averaged during backward, bucket by bucket. Options are those of
/// torch.nn.parallel.DistributedDataParallel and of Lightning's DDPStrategy where names agree.
struct Ddp {
  double bucket_cap_mb = 25;  ///< gradients reduced at once, in MiB; the first bucket is 1 MiB by default
  bool find_unused_parameters =
      false;                  ///< allows losses that leave out some parameters; walks the graph for them
  bool static_graph = false;  ///< promises that the graphs of every window are those of the first
  bool gradient_as_bucket_view = false;  ///< gradients are views of flat buckets, which saves a copy of them
                                         ///< where there are any: with a comm hook, or on a device; for
                                         ///< lockstep's optimizers (torch::optim's zero_grad() throws)
  bool reduce_every_micro_batch =
      false;                      ///< average gradients in every backward of a window that
                                  ///< accumulates, as ZeRO's stages 2 and 3 do, instead of in the last
  bool broadcast_buffers = true;  ///< buffers follow rank 0's after every step
  bool init_sync = true;          ///< compares the ranks' modules at setup and makes them equal to rank 0's
  bool skip_all_reduce_unused_params =
      false;  ///< with find_unused_parameters: leaves out buckets that no rank uses; all ranks must agree
  EnumOption<DdpCommHook> ddp_comm_hook = DdpCommHook::kAllreduce;      ///< how gradients travel
  EnumOption<DdpCommWrapper> ddp_comm_wrapper = DdpCommWrapper::kNone;  ///< dtype that the hook works on
  PowerSgd ddp_comm_state = {};                                         ///< options of ddp_comm_hook powerSGD
  CommHook comm_hook = {};                                       ///< in code: a hook of one's own, instead
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< for joining and for each collective
  std::string process_group_backend = "auto";             ///< what carries the bytes: CommOptions::backend
  EnumOption<Reduction> reduction = Reduction::kOrdered;  ///< order of sums
  bool check_collectives = true;  ///< ranks compare what they call before each collective
  EnumOption<StartMethod> start_method = StartMethod::kAuto;  ///< how ranks come to be
  EnvironmentChoice cluster_environment = {};  ///< who told each rank its place; by default detected
};

LOCKSTEP_API void describe(OptionVisitor& visitor, Ddp& options);

/// As DistributedDataParallel._get_ddp_logging_data(), names included. Times are those of the first ten
/// averaged backward passes and of every hundredth; averages are over these. "Forward" is all that
/// lies between after_step() and backward(), since a module without wrapper does not say when its
/// forward begins: loading data and local backward passes count. There are no buckets and times in a world
/// of one, and with static_graph none before the first averaged backward.
struct DdpLoggingData {
  int rank = 0;                                 ///< this rank, from 0
  int world_size = 1;                           ///< ranks of the job
  std::int64_t iteration = 0;                   ///< averaged backward passes when the times were taken last
  std::int64_t num_parameter_tensors = 0;       ///< parameters with gradients
  std::int64_t total_parameter_size_bytes = 0;  ///< of parameters with gradients
  std::int64_t unused_parameter_size = 0;       ///< bytes of parameters that the last one did not use
  std::int64_t bucket_cap_bytes = 0;            ///< of DDP's options
  std::string comm_hook = {};                   ///< name of the built-in hook, or "custom"
  std::vector<std::int64_t> bucket_sizes = {};  ///< bytes, as planned before the first backward
  bool has_rebuilt_buckets = false;             ///< whether the following holds
  std::vector<std::int64_t> rebuilt_bucket_sizes = {};            ///< bytes, in the order of gradients
  std::vector<std::string> prev_iteration_grad_ready_order = {};  ///< parameters, first gradient first
  bool can_set_static_graph = false;  ///< with find_unused_parameters: no backward differed from the others
  bool join_uneven_inputs = false;    ///< whether a Join was ever used
  std::chrono::nanoseconds forward_compute_time{};                ///< of the last step that was timed
  std::chrono::nanoseconds backward_compute_time{};               ///< of the last step that was timed
  std::chrono::nanoseconds backward_comm_time{};                  ///< first bucket issued to last one done
  std::chrono::nanoseconds backward_compute_comm_overlap_time{};  ///< of the two above
  std::chrono::nanoseconds avg_forward_compute_time{};            ///< of all steps that were timed
  std::chrono::nanoseconds avg_backward_compute_time{};           ///< of all steps that were timed
  std::chrono::nanoseconds avg_backward_comm_time{};              ///< of all steps that were timed
  std::chrono::nanoseconds avg_backward_compute_comm_overlap_time{};  ///< of all steps that were timed
};

}  // namespace lockstep
