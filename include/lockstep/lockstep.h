// Everything a training program needs: a table of contents.
#pragma once

#include <lockstep/torch.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/options.h>
#include <lockstep/base/version.h>

#include <lockstep/advice/advise.h>
#include <lockstep/advice/memory_estimate.h>

#include <lockstep/cluster/detect.h>
#include <lockstep/cluster/environment.h>
#include <lockstep/cluster/launcher_environments.h>
#include <lockstep/cluster/torch_environments.h>

#include <lockstep/comm/collective_observer.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/comm/init.h>
#include <lockstep/comm/packed_collectives.h>

#include <lockstep/launch/errors.h>
#include <lockstep/launch/join.h>
#include <lockstep/launch/spawn.h>

#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/checkpoint/huggingface.h>
#include <lockstep/checkpoint/interop.h>
#include <lockstep/checkpoint/weights.h>

#include <lockstep/data/any_loader.h>
#include <lockstep/data/batch_generator.h>
#include <lockstep/data/combined_loader.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/file_dataset.h>
#include <lockstep/data/image_folder.h>
#include <lockstep/data/iterable_dataset.h>
#include <lockstep/data/loader.h>
#include <lockstep/data/look_ahead.h>
#include <lockstep/data/sampler.h>
#include <lockstep/data/torch_dataset.h>
#include <lockstep/data/webdataset.h>

#include <lockstep/device/accelerator.h>
#include <lockstep/device/allocator.h>
#include <lockstep/device/cross_entropy.h>
#include <lockstep/device/devices.h>
#include <lockstep/device/scalar.h>
#include <lockstep/device/torch_device.h>

#include <lockstep/deepspeed/complete.h>
#include <lockstep/deepspeed/config.h>

#include <lockstep/formats/checkpoint_tools.h>

#include <lockstep/metrics/aggregation.h>
#include <lockstep/metrics/classification.h>
#include <lockstep/metrics/classification_task.h>
#include <lockstep/metrics/metric.h>
#include <lockstep/metrics/metric_collection.h>
#include <lockstep/metrics/regression.h>

#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/optim/scheduler.h>

#include <lockstep/parallel/activations.h>
#include <lockstep/parallel/autograd.h>
#include <lockstep/parallel/ddp/ddp_engine.h>
#include <lockstep/parallel/ddp/join.h>
#include <lockstep/parallel/deepspeed_utils.h>
#include <lockstep/parallel/deferred_init.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/parallel/sync_batch_norm.h>
#include <lockstep/parallel/zero.h>

#include <lockstep/precision/forward_scope.h>
#include <lockstep/precision/grad_scaler.h>
#include <lockstep/precision/precision.h>
#include <lockstep/precision/precision_options.h>

#include <lockstep/state/module_state.h>
#include <lockstep/state/state_tree.h>

#include <lockstep/strategy/strategy.h>
#include <lockstep/strategy/strategy_options.h>

#include <lockstep/loggers/loggers.h>

#include <lockstep/profilers/profilers.h>

#include <lockstep/fabric/deepspeed_checkpoint.h>
#include <lockstep/fabric/fabric.h>
#include <lockstep/fabric/fabric_loader.h>
#include <lockstep/fabric/flop_counter.h>
#include <lockstep/fabric/spike_detector.h>
#include <lockstep/fabric/throughput.h>

#include <lockstep/train/callbacks/early_stopping.h>
#include <lockstep/train/callbacks/failure_checkpoints.h>
#include <lockstep/train/callbacks/finetuning.h>
#include <lockstep/train/callbacks/gradient_accumulation_scheduler.h>
#include <lockstep/train/callbacks/lambda_callback.h>
#include <lockstep/train/callbacks/model_checkpoint.h>
#include <lockstep/train/callbacks/model_pruning.h>
#include <lockstep/train/callbacks/model_summary.h>
#include <lockstep/train/callbacks/monitors.h>
#include <lockstep/train/callbacks/prediction_writer.h>
#include <lockstep/train/callbacks/progress_bar.h>
#include <lockstep/train/callbacks/timer.h>
#include <lockstep/train/callbacks/weight_averaging.h>
#include <lockstep/train/data_module.h>
#include <lockstep/train/first_weights.h>
#include <lockstep/train/hooks.h>
#include <lockstep/train/module.h>
#include <lockstep/train/named_callbacks.h>
#include <lockstep/train/pytorch_profiler.h>
#include <lockstep/train/trainer.h>
#include <lockstep/train/tuner.h>

#include <lockstep/cli/run.h>
