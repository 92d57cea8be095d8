// Settings that contradict each other.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/deepspeed/config.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

using test::expect_error;

struct Case {
  std::string name;
  std::string refused;
  std::vector<std::string> parts;
  std::string accepted;  ///< nearly the same, without the contradiction
};

void PrintTo(const Case& c, std::ostream* stream) { *stream << c.name; }

class DeepSpeedRules : public ::testing::TestWithParam<Case> {};

TEST_P(DeepSpeedRules, RefuseAContradictionAndNothingElse) {
  expect_error<ConfigError>([] { parse_deepspeed_config(GetParam().refused, "ds.json"); }, GetParam().parts);
  EXPECT_NO_THROW(parse_deepspeed_config(GetParam().accepted, "ds.json"));
}

std::string zero(const std::string& inside) { return "{\"zero_optimization\": {" + inside + "}}"; }

const std::vector<Case>& cases() {
  static const std::vector<Case> cases{
      {"TwoPrecisions",
       "{\"fp16\": {\"enabled\": true},\n\"bf16\": {\"enabled\": true}}",
       {"bf16.enabled does not go with fp16.enabled", "expected one of them",
        "bf16.enabled (ds.json:2:10) = true", "fp16.enabled (ds.json:1:11) = true"},
       R"({"fp16": {"enabled": false}, "bf16": {"enabled": true}})"},
      {"AmpWithZero",
       R"({"amp": {"enabled": true, "opt_level": "O1"}, "zero_optimization": {"stage": 1}})",
       {"amp.enabled", "stage", "use fp16 or bf16"},
       R"({"amp": {"enabled": true}})"},
      {"LegacyStage1",
       zero(R"("stage": 1, "legacy_stage1": true)"),
       {"legacy_stage1", "expected false"},
       zero(R"("stage": 1, "legacy_stage1": false)")},
      {"OddBucket",
       zero(R"("stage": 1, "allgather_bucket_size": 33)"),
       {"allgather_bucket_size", "an even number", "33"},
       zero(R"("stage": 1, "allgather_bucket_size": 34)")},
      {"OddBlocks",
       R"({"aio": {"block_size": 1000}, "zero_optimization": {"stage": 3,
           "offload_param": {"device": "nvme", "nvme_path": "/d"}}})",
       {"aio.block_size (ds.json:1:10) = 1000", "a multiple of 4096"},
       R"({"aio": {"block_size": 1000}, "zero_optimization": {"stage": 2,
           "offload_param": {"device": "nvme", "nvme_path": "/d"}}})"},
      {"DeepQueue",
       R"({"aio": {"queue_depth": 5000}, "zero_optimization": {"stage": 1,
           "offload_optimizer": {"device": "nvme", "nvme_path": "/d"}}})",
       {"aio.queue_depth (ds.json:1:10) = 5000", "1 to 4096"},
       R"({"aio": {"queue_depth": 5000}})"},
      {"SecondaryShardsWithMics",
       zero(R"("stage": 3, "zero_hpz_partition_size": 2, "mics_shard_size": 2)"),
       {"zero_hpz_partition_size", "mics_shard_size", "one of them"},
       zero(R"("stage": 3, "zero_hpz_partition_size": 1, "mics_shard_size": 2)")},
      {"QuantizedGradientsWithMics",
       zero(R"("stage": 3, "zero_quantized_gradients": true, "mics_shard_size": 2)"),
       {"zero_quantized_gradients", "mics_shard_size", "one of them"},
       zero(R"("stage": 3, "zero_quantized_gradients": true)")},
      {"PartialOffload",
       zero(R"("stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.3})"),
       {"ratio", "stage 3", "= 0.3", "zero_optimization.stage (ds.json:1:24) = 2"},
       zero(R"("stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.3})")},
      {"OptimizerToNowhere",
       zero(R"("stage": 3, "offload_optimizer": {"device": "nvme"})"),
       {"offload_optimizer.nvme_path", "a folder"},
       zero(R"("stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/x"})")},
      {"ParametersToNowhere",
       zero(R"("stage": 3, "offload_param": {"device": "nvme"})"),
       {"offload_param.nvme_path", "a folder"},
       zero(R"("stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/x"})")},
      {"Prescale",
       R"({"prescale_gradients": true, "zero_optimization": {"stage": 2}})",
       {"prescale_gradients does not go with", "reduce_scatter"},
       R"({"prescale_gradients": true, "zero_optimization": {"stage": 2, "reduce_scatter": false}})"},
      {"Predivide",
       R"({"gradient_predivide_factor": 2, "zero_optimization": {"stage": 3}})",
       {"gradient_predivide_factor", "reduce_scatter"},
       R"({"gradient_predivide_factor": 2, "zero_optimization": {"stage": 1}})"},
      {"NoNorm",
       R"({"zero_optimization": {"stage": 2, "compute_grad_norm": false}})",
       {"compute_grad_norm", "gradient_clipping = 1.0"},
       R"({"gradient_clipping": 0, "zero_optimization": {"stage": 2, "compute_grad_norm": false}})"},
      {"SumAtStage3",
       R"({"gradient_allreduce_op": "sum", "zero_optimization": {"stage": 3}})",
       {"gradient_allreduce_op", "mean at stage 3", "= sum"},
       R"({"gradient_allreduce_op": "sum", "zero_optimization": {"stage": 2}})"},
      {"Window",
       R"({"fp16": {"enabled": true, "loss_scale_window": 0}})",
       {"fp16.loss_scale_window", "> 0"},
       R"({"fp16": {"enabled": false, "loss_scale_window": 0}})"},
      {"MinimalScale",
       R"({"fp16": {"enabled": true, "min_loss_scale": -1}})",
       {"fp16.min_loss_scale", "> 0"},
       R"({"fp16": {"enabled": true, "loss_scale": 128, "min_loss_scale": -1}})"},
      {"NegativeScale",
       R"({"fp16": {"loss_scale": -1}})",
       {"fp16.loss_scale", ">= 0"},
       R"({"fp16": {"loss_scale": 0}})"},
      {"NanScale",
       R"({"fp16": {"loss_scale": NaN}})",
       {"fp16.loss_scale", "a finite number"},
       R"({"fp16": {"loss_scale": "128"}})"},
      {"BoolScale",
       R"({"fp16": {"loss_scale": true}})",
       {"fp16.loss_scale", "a finite number", "got true"},
       R"({"fp16": {"loss_scale": 1}})"},
      {"BoolWindow",
       R"({"fp16": {"loss_scale_window": true}})",
       {"an integer", "got true"},
       R"({"fp16": {"loss_scale_window": 1e3}})"},
      {"Fp16Masters",
       R"({"fp16": {"fp16_master_weights_and_grads": true}, "zero_optimization": {"stage": 2}})",
       {"fp16_master_weights_and_grads", "offload_optimizer"},
       R"({"fp16": {"fp16_master_weights_and_grads": true},
           "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})"},
      {"Bf16Masters",
       R"({"bf16": {"bf16_master_weights_and_grads": true}})",
       {"bf16_master_weights_and_grads", "stage 1, 2 or 3"},
       R"({"bf16": {"bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},
           "zero_optimization": {"stage": 2}})"},
      {"Bf16States",
       R"({"bf16": {"bf16_optimizer_states": true}, "zero_optimization": {"stage": 2}})",
       {"bf16_optimizer_states", "bf16_master_weights_and_grads as well"},
       R"({"bf16": {"bf16_optimizer_states": false}})"},
      {"ParameterType",
       R"({"bf16": {"enabled": true}, "data_types": {"param_dtype": "fp16"}})",
       {"data_types.param_dtype", "= fp16"},
       R"({"bf16": {"enabled": true}, "data_types": {"param_dtype": "bfloat16"}})"},
      {"ContiguousActivations",
       R"({"activation_checkpointing": {"contiguous_memory_optimization": true}})",
       {"contiguous_memory_optimization", "partition_activations and number_checkpoints"},
       R"({"activation_checkpointing": {"contiguous_memory_optimization": true, "partition_activations": true,
           "number_checkpoints": 4}})"},
      {"MaxGradNorm",
       R"({"optimizer": {"type": "Adam", "params": {"max_grad_norm": 1.0}}})",
       {"unknown key optimizer.params.max_grad_norm", "ds.json:1:43", "use gradient_clipping"},
       R"({"optimizer": {"type": "Adam"}, "gradient_clipping": 1.0})"},
      {"Amsgrad",
       R"({"optimizer": {"type": "Lamb", "params": {"amsgrad": true}}})",
       {"optimizer.params.amsgrad (ds.json:1:43) = true", "expected false"},
       R"({"optimizer": {"type": "Lamb", "params": {"amsgrad": false}}})"},
      {"UntestedOptimizer",
       R"({"optimizer": {"type": "SGD"}, "zero_optimization": {"stage": 1}})",
       {"optimizer.type", "= SGD", "zero_allow_untested_optimizer"},
       R"({"optimizer": {"type": "SGD"}, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": true})"},
      {"LambWithStaticScale",
       R"({"optimizer": {"type": "Lamb"}, "fp16": {"enabled": true, "loss_scale": 128}})",
       {"fp16.loss_scale", "optimizer.type", "0 with Lamb"},
       R"({"optimizer": {"type": "Lamb"}, "fp16": {"enabled": true}})"},
      {"OneBit",
       R"({"optimizer": {"type": "OneBitAdam"}})",
       {"optimizer.type OneBitAdam is not available", "ZeRO"},
       R"({"optimizer": {"type": "adam"}})"},
      {"NoTotal",
       R"({"scheduler": {"type": "WarmupDecayLR", "params": {}}})",
       {"scheduler.params.total_num_steps", "a number of steps"},
       R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}}})"},
      {"NoCycleMinimum",
       R"({"scheduler": {"type": "OneCycle", "params": {"cycle_max_lr": 0.1}}})",
       {"cycle_min_lr", "a learning rate"},
       R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1}}})"},
      {"NoCycleMaximum",
       R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1}}})",
       {"cycle_max_lr", "a learning rate"},
       R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": [0.01], "cycle_max_lr": [0.1]}}})"},
      {"NoWarmup",
       R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}})",
       {"scheduler.params.warmup_num_steps", ">= 1", "ds.json:1:67"},
       R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1}}})"},
      {"UnknownScheduler",
       R"({"scheduler": {"type": "WarmpLR"}})",
       {"scheduler.type", "OneCycle", "did you mean WarmupLR?"},
       R"({"scheduler": {"type": "warmuplr"}})"},
      {"UnknownParameter",
       R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_steps": 5}}})",
       {"unknown key scheduler.params.warmup_steps"},
       R"({"scheduler": {"type": "WarmupLR", "parms": {}}})"},
      {"NoType",
       R"({"optimizer": {"params": {"lr": 1}}})",
       {"optimizer.type", "one of none, Adam", "got none"},
       R"({"optimizer": null})"},
      {"ThreeBetas",
       R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9, 0.99, 0.999]}}})",
       {"optimizer.params.betas", "two numbers in [0, 1)"},
       R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9, 0.99]}}})"},
      {"TrustRatiosInReverse",
       "{\"optimizer\": {\"type\": \"Lamb\", \"params\": {\"min_coeff\": 0.5,\n\"max_coeff\": 0.1}}}",
       {"optimizer.params.max_coeff (ds.json:2:1) = 0.1", "optimizer.params.min_coeff (ds.json:1:43) = 0.5"},
       R"({"optimizer": {"type": "Lamb", "params": {"min_coeff": 0.1, "max_coeff": 0.1}}})"},
      {"NesterovWithoutMomentum",
       R"({"optimizer": {"type": "SGD", "params": {"nesterov": true}}})",
       {"optimizer.params.nesterov (ds.json:1:42) = true", "a momentum above 0"},
       R"({"optimizer": {"type": "SGD", "params": {"nesterov": true, "momentum": 0.9}}})"},
      {"NesterovWithDampening",
       R"({"optimizer": {"type": "SGD", "params": {"nesterov": true, "momentum": 0.9, "dampening": 0.1}}})",
       {"optimizer.params.dampening (ds.json:1:77) = 0.1", "a dampening of 0"},
       R"({"optimizer": {"type": "SGD", "params": {"momentum": 0.9, "dampening": 0.1}}})"},
      {"MomentumOfMuonAboveOne",
       R"({"optimizer": {"type": "Muon", "params": {"momentum": 1.5}}})",
       {"ds.json:1", "optimizer.params.momentum", "0..1", "1.5"},
       R"({"optimizer": {"type": "Muon", "params": {"momentum": 1.0}}})"},
  };
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, DeepSpeedRules, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace lockstep
