#include "train/options/former_options.h"

#include <algorithm>
#include <array>

namespace lockstep::detail {
namespace {

struct Former {
  std::string_view name;
  std::string_view instead;
};

constexpr std::string_view kDevices = "say trainer.devices, with the number of ranks of a node";
constexpr std::string_view kTuner = "the tuner does this: see docs/tuner.md";
constexpr std::string_view kPrecision = "say trainer.precision: 16-mixed or bf16-mixed";
constexpr std::string_view kCallback = "say trainer.callbacks, with class_path StochasticWeightAveraging";

constexpr std::array kFormer{
    Former{"amp_backend", kPrecision},
    Former{"amp_level", kPrecision},
    Former{"auto_lr_find", kTuner},
    Former{"auto_scale_batch_size", kTuner},
    Former{"auto_select_gpus", kDevices},
    Former{"checkpoint_callback", "say trainer.enable_checkpointing"},
    Former{"distributed_backend", "say trainer.strategy: ddp"},
    Former{"flush_logs_every_n_steps", "options of the logger say when it writes"},
    Former{"gpus", kDevices},
    Former{"ipus", kDevices},
    Former{"move_metrics_to_cpu", "leave it out: metrics are where they are computed"},
    Former{"multiple_trainloader_mode", "give the mode to the combined loader, in the program"},
    Former{"num_processes", kDevices},
    Former{"prepare_data_per_node", "leave it out: prepare_data() is called once on each node"},
    Former{"process_position", "leave it out: there is one line of progress"},
    Former{"progress_bar_refresh_rate", "say trainer.enable_progress_bar"},
    Former{"replace_sampler_ddp", "say trainer.use_distributed_sampler"},
    Former{"resume_from_checkpoint",
           "say --ckpt_path with the checkpoint, or --resume auto for the newest one"},
    Former{"stochastic_weight_avg", kCallback},
    Former{"terminate_on_nan", "say trainer.detect_anomaly"},
    Former{"tpu_cores", kDevices},
    Former{"track_grad_norm", "log the norm in the module, in on_before_optimizer_step()"},
    Former{"truncated_bptt_steps", "cut the sequence in the module, with manual optimization"},
    Former{"weights_save_path", "say --run_dir"},
    Former{"weights_summary", "say trainer.enable_model_summary"},
};

}  // namespace

std::string_view instead_of_former(std::string_view key) {
  constexpr std::string_view kTrainer = "trainer.";
  if (!key.starts_with(kTrainer)) return {};
  key.remove_prefix(kTrainer.size());
  const auto found = std::ranges::find_if(
      kFormer, [&](const Former& former) { return former.name == key.substr(0, key.find('.')); });
  return found == kFormer.end() ? std::string_view() : found->instead;
}

}  // namespace lockstep::detail
