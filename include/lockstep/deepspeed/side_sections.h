// The sections of DeepSpeed's configuration about element types, disks, activations, measurements and
// checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/option_visitor.h>
#include <lockstep/deepspeed/auto_or.h>

namespace lockstep::deepspeed {

/// Element types by DeepSpeed's names.
enum class Dtype { kFp32, kFp16, kBf16 };

/// "fp16"
struct Fp16 {
  AutoOr<bool> enabled = false;
  bool auto_cast = false;
  double loss_scale = 0.0;                ///< 0: dynamic
  int initial_scale_power = 16;           ///< a dynamic scale starts at 2 to this power
  std::int64_t loss_scale_window = 1000;  ///< steps without overflow before the scale doubles
  int hysteresis = 2;                     ///< overflows that are tolerated before the scale is halved
  bool consecutive_hysteresis = false;
  std::int64_t min_loss_scale = 1;
  bool fp16_master_weights_and_grads = false;
};

/// "bf16"
struct Bf16 {
  AutoOr<bool> enabled = false;
  bool immediate_grad_update = false;
  bool check_grad_overflow = true;
  bool bf16_master_weights_and_grads = false;
  bool bf16_optimizer_states = false;
};

/// "data_types"; none: the model's
struct DataTypes {
  std::optional<Dtype> grad_accum_dtype = {};
  std::optional<Dtype> param_dtype = {};
  std::optional<Dtype> buffer_dtype = {};
};

/// "torch_autocast"
struct TorchAutocast {
  bool enabled = false;
  std::optional<Dtype> dtype = {};
  std::vector<std::string> lower_precision_safe_modules = {};
};

/// "amp": Apex, which is not supported; the section is read so that files which switch it off work.
struct Amp {
  AutoOr<bool> enabled = false;
};

LOCKSTEP_API void describe(OptionVisitor& v, Fp16& o);
LOCKSTEP_API void describe(OptionVisitor& v, Bf16& o);
LOCKSTEP_API void describe(OptionVisitor& v, DataTypes& o);
LOCKSTEP_API void describe(OptionVisitor& v, TorchAutocast& o);
LOCKSTEP_API void describe(OptionVisitor& v, Amp& o);
LOCKSTEP_API std::span<const OptionName<Dtype>> option_names(Dtype);

/// "aio": how offloaded states are read from and written to disk.
struct Aio {
  std::int64_t block_size = 1'048'576;  ///< bytes
  std::int64_t queue_depth = 8;
  std::int64_t intra_op_parallelism = 1;  ///< threads; formerly thread_count
  bool single_submit = false;
  bool overlap_events = true;
  bool use_gds = false;
};

/// "activation_checkpointing": how ls::checkpoint stores activations; the section alone checkpoints nothing.
struct ActivationCheckpointing {
  bool partition_activations = false;
  bool cpu_checkpointing = false;
  bool contiguous_memory_optimization = false;
  std::optional<std::int64_t> number_checkpoints = {};
  bool synchronize_checkpoint_boundary = false;
  bool profile = false;
};

/// "flops_profiler"
struct FlopsProfiler {
  bool enabled = false;
  double recompute_fwd_factor = 0.0;
  std::int64_t profile_step = 1;
  std::int64_t module_depth = -1;
  std::int64_t top_modules = 1;
  bool detailed = true;
  std::optional<std::filesystem::path> output_file = {};
};

/// "tensorboard", "csv_monitor"
struct Monitor {
  bool enabled = false;
  std::filesystem::path output_path = {};
  std::string job_name = "DeepSpeedJobName";
};

/// "comms_logger"
struct CommsLogger {
  bool enabled = false;
  bool verbose = false;
  bool prof_all = true;
  bool debug = false;
  std::vector<std::string> prof_ops = {};
};

/// "timers.throughput"
struct ThroughputTimer {
  bool enabled = true;
  bool synchronized = true;
};

/// "timers"
struct Timers {
  ThroughputTimer throughput = {};
};

/// What happens when ranks save under different tags.
enum class TagValidation { kIgnore, kWarn, kFail };

/// What writes checkpoints.
enum class CheckpointWriterType { kMock, kPython, kFast };
/// Ranks of which one writes.
enum class WriterUnit { kReplica, kSocket, kMachine };

/// "checkpoint.writer"
struct CheckpointWriter {
  CheckpointWriterType type = CheckpointWriterType::kFast;
  bool decoupled = false;
  std::int64_t io_buffer_size = 64 << 20;  ///< bytes
  bool io_buffer_double = true;
  bool show_statistics = false;
  std::optional<WriterUnit> data_parallel = {};
  std::int64_t io_multiplier = 1;
};

/// "checkpoint.parallel_write"
struct ParallelWrite {
  bool pipeline_stage = false;
};

/// "checkpoint"
struct CheckpointConfig {
  TagValidation tag_validation = TagValidation::kWarn;
  bool load_universal = false;
  bool use_node_local_storage = false;
  ParallelWrite parallel_write = {};
  bool checkpoint_serialization = true;
  CheckpointWriter writer = {};
};

LOCKSTEP_API void describe(OptionVisitor& v, Aio& o);
LOCKSTEP_API void describe(OptionVisitor& v, ActivationCheckpointing& o);
LOCKSTEP_API void describe(OptionVisitor& v, FlopsProfiler& o);
LOCKSTEP_API void describe(OptionVisitor& v, Monitor& o);
LOCKSTEP_API void describe(OptionVisitor& v, CommsLogger& o);
LOCKSTEP_API void describe(OptionVisitor& v, ThroughputTimer& o);
LOCKSTEP_API void describe(OptionVisitor& v, Timers& o);
LOCKSTEP_API void describe(OptionVisitor& v, CheckpointWriter& o);
LOCKSTEP_API void describe(OptionVisitor& v, ParallelWrite& o);
LOCKSTEP_API void describe(OptionVisitor& v, CheckpointConfig& o);
LOCKSTEP_API std::span<const OptionName<TagValidation>> option_names(TagValidation);
LOCKSTEP_API std::span<const OptionName<CheckpointWriterType>> option_names(CheckpointWriterType);
LOCKSTEP_API std::span<const OptionName<WriterUnit>> option_names(WriterUnit);

}  // namespace lockstep::deepspeed
