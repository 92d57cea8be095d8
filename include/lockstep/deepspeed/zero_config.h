// Section "zero_optimization" of DeepSpeed's configuration. Sizes count elements, not bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/option_visitor.h>
#include <lockstep/deepspeed/auto_or.h>

namespace lockstep::deepspeed {

/// Where states are stored between their uses.
enum class OffloadDevice { kNone, kCpu, kNvme };

/// "offload_param": parameters; needs stage 3.
struct OffloadParam {
  OffloadDevice device = OffloadDevice::kNone;
  std::optional<std::filesystem::path> nvme_path = {};  ///< any folder; required for nvme
  std::int64_t buffer_count = 5;
  std::int64_t buffer_size = 100'000'000;
  std::int64_t max_in_cpu = 1'000'000'000;
  bool pin_memory = true;
};

/// "offload_optimizer": optimizer state and step; nvme needs stage 3.
struct OffloadOptimizer {
  OffloadDevice device = OffloadDevice::kNone;
  std::optional<std::filesystem::path> nvme_path = {};  ///< any folder; required for nvme
  std::int64_t buffer_count = 4;
  bool pin_memory = true;
  bool pipeline_read = false;
  bool pipeline_write = false;
  bool fast_init = false;
  double ratio = 1.0;  ///< share of the sub-groups whose step is on the CPU; below 1: stage 3 only
  bool super_offload = false;
  double cpuadam_cores_perc = 0.8;
};

/// "zeropp_loco_param": error feedback of quantised gradients.
struct LocoParam {
  double err_beta = 0.8;
  std::int64_t reset_T = 1024;
};

/// "leaf_module": modules that stage 3 gathers as one unit.
struct LeafModule {
  std::vector<std::string> classes = {};
  std::vector<std::string> names = {};
  std::vector<std::string> name_suffixes = {};
};

/// The section `zero_optimization`.
struct ZeroConfig {
  int stage = 0;
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  AutoOr<std::int64_t> reduce_bucket_size = 500'000'000;
  bool use_multi_rank_bucket_allreduce = true;
  bool allgather_partitions = true;
  std::int64_t allgather_bucket_size = 500'000'000;  ///< even
  std::optional<bool> overlap_comm = {};             ///< none: yes, at every stage
  bool compute_grad_norm = true;                     ///< false: stages 1 and 2 without clipping only
  bool load_from_fp32_weights = true;
  bool elastic_checkpoint = false;
  OffloadParam offload_param = {};
  OffloadOptimizer offload_optimizer = {};
  std::int64_t sub_group_size = 1'000'000'000;
  AutoOr<std::int64_t> stage3_prefetch_bucket_size = 50'000'000;
  AutoOr<std::int64_t> stage3_param_persistence_threshold = 100'000;
  std::int64_t stage3_model_persistence_threshold = std::numeric_limits<std::int64_t>::max();
  AutoOr<std::int64_t> stage3_max_live_parameters = 1'000'000'000;
  AutoOr<std::int64_t> stage3_max_reuse_distance = 1'000'000'000;
  bool stage3_gather_16bit_weights_on_model_save = false;
  std::int64_t stage3_module_granularity_threshold = 0;
  bool stage3_use_all_reduce_for_fetch_params = false;
  bool stage3_allgather_sequential = false;
  bool ignore_unused_parameters = true;
  bool legacy_stage1 = false;
  bool round_robin_gradients = false;
  std::int64_t zero_hpz_partition_size = 1;
  bool zero_quantized_weights = false;
  bool zero_quantized_nontrainable_weights = false;
  bool zero_quantized_gradients = false;
  LocoParam zeropp_loco_param = {};
  std::int64_t mics_shard_size = -1;
  bool mics_hierarchical_params_gather = false;
  bool parameter_alignment = false;
  bool memory_efficient_linear = true;
  bool pipeline_loading_checkpoint = false;
  bool override_module_apply = true;
  bool log_trace_cache_warnings = false;
  bool enable_sanity_checks = false;
  bool save_muon_momentum_buffer_in_memory = false;
  LeafModule leaf_module = {};
};

LOCKSTEP_API void describe(OptionVisitor& v, OffloadParam& o);
LOCKSTEP_API void describe(OptionVisitor& v, OffloadOptimizer& o);
LOCKSTEP_API void describe(OptionVisitor& v, LocoParam& o);
LOCKSTEP_API void describe(OptionVisitor& v, LeafModule& o);
LOCKSTEP_API void describe(OptionVisitor& v, ZeroConfig& o);
LOCKSTEP_API std::span<const OptionName<OffloadDevice>> option_names(OffloadDevice);

}  // namespace lockstep::deepspeed
