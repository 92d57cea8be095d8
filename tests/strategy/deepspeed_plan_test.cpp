// What each setting of DeepSpeed's comes to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/precision/precision.h>
#include <lockstep/strategy/deepspeed.h>

#include "strategy/deepspeed_optimizer.h"
#include "strategy/deepspeed_run.h"
#include "strategy/deepspeed_strategy.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using deepspeed::Dtype;
using deepspeed::OffloadDevice;

// Of 4 ranks.
ShardingPlan plan(const DeepSpeed& options, Dtype dtype = Dtype::kFp32) {
  return detail::plan_of(deepspeed_config(options, dtype), dtype, 4);
}

ShardingPlan plan_from(const std::string& zero, int ranks_per_node = 1) {
  const auto config = parse_deepspeed_config("{\"zero_optimization\": " + zero + "}", "ds.json").config;
  return detail::plan_of(config, Dtype::kFp32, 4, ranks_per_node);
}

TEST(DeepSpeedPlan, StagesDifferInWhatIsCutAndHowLongUnitsStay) {
  EXPECT_EQ(plan({.stage = 0}).shards, 1);
  EXPECT_EQ(plan({.zero_optimization = false, .stage = 3}).shards, 1);
  for (const int stage : {1, 2}) {
    EXPECT_EQ(plan({.stage = stage}).shards, 4);
    EXPECT_EQ(plan({.stage = stage}).keep, KeepGathered::kUntilStep);
  }
  EXPECT_EQ(plan({.stage = 3}).keep, KeepGathered::kWhileUsed);
}

TEST(DeepSpeedPlan, Stage3KeepsWhatItsLimitsLeaveRoomFor) {
  const auto found =
      plan_from(R"({"stage": 3, "stage3_max_live_parameters": 700, "stage3_max_reuse_distance": 900,
      "stage3_param_persistence_threshold": 10, "stage3_model_persistence_threshold": 50,
      "stage3_prefetch_bucket_size": 600})");
  EXPECT_EQ(found.max_live_elements, 700);
  EXPECT_EQ(found.persistent_elements, 10);
  EXPECT_EQ(found.most_persistent_elements, 50);
  EXPECT_EQ(found.most_prefetched_elements, 600);
  EXPECT_EQ(plan_from(R"({"stage": 3, "mics_shard_size": 2})").shards, 2);
  EXPECT_EQ(plan_from(R"({"stage": 3, "leaf_module": {"classes": ["Block"]}})").units.print(), "Block");
  EXPECT_EQ(
      plan_from(R"({"leaf_module": {"names": ["a.b"], "name_suffixes": ["mlp", "attn"]}})").units.print(),
      "name a.b,name ...mlp,name ...attn");
}

TEST(DeepSpeedPlan, BucketsHoldWhatIsReducedOrGatheredAtATime) {
  const auto elements = [](const std::string& stage) {
    return plan_from("{\"stage\": " + stage + R"(, "reduce_bucket_size": 700, "allgather_bucket_size": 500})")
        .most_bucket_elements;
  };
  EXPECT_EQ(elements("0"), ShardingPlan::kNoLimit);
  EXPECT_EQ(elements("1"), 500);
  EXPECT_EQ(elements("2"), 500);
  EXPECT_EQ(elements("3"), 700);  // gathers by modules
}

TEST(DeepSpeedPlan, NamesItsOwnKeys) {
  const auto named = plan_from(R"({"leaf_module": {"names": ["a"]}})");
  EXPECT_EQ(named.units_option, "zero_optimization.leaf_module (ds.json:1:24)");
  const auto cut = plan_from(R"({"stage": 3, "mics_shard_size": 3})");
  test::expect_error<ConfigError>([&] { check_plan(cut, 4); },
                                  {"zero_optimization.mics_shard_size (ds.json", "4 ranks", "3 shards"});
}

TEST(DeepSpeedPlan, Bf16MastersAreAsked) {
  const auto config =
      parse_deepspeed_config(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
      "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}})",
                             "ds.json")
          .config;
  EXPECT_EQ(detail::plan_of(config, Dtype::kBf16, 4).master_dtype, at::kBFloat16);
}

TEST(DeepSpeedPlan, OverlapCommGathersAhead) {
  EXPECT_TRUE(plan({.overlap_comm = true}).forward_prefetch);
  EXPECT_FALSE(plan({.overlap_comm = false}).forward_prefetch);
  EXPECT_EQ(plan({.overlap_comm = false}).backward_prefetch, BackwardPrefetch::kNone);
}

TEST(DeepSpeedPlan, ComputesInHalfAPrecisionAndStepsInFloat32) {
  const auto bf16 = plan({}, Dtype::kBf16);
  EXPECT_EQ(bf16.mixed_precision.param_dtype, at::kBFloat16);
  EXPECT_EQ(bf16.mixed_precision.reduce_dtype, at::kBFloat16);
  EXPECT_EQ(bf16.master_dtype, at::kFloat);
  EXPECT_FALSE(plan(DeepSpeed{}).master_dtype);
}

TEST(DeepSpeedPlan, OffloadGoesToDisk) {
  EXPECT_FALSE(plan({.stage = 3, .offload_optimizer = true, .offload_parameters = true}).offload)
      << "what would be on the CPU is there";
  const auto found = plan({.stage = 3,
                           .offload_optimizer = true,
                           .offload_parameters = true,
                           .offload_optimizer_device = OffloadDevice::kNvme,
                           .offload_params_device = OffloadDevice::kNvme,
                           .nvme_path = "/scratch",
                           .optimizer_buffer_count = 6,
                           .block_size = 8192,
                           .queue_depth = 3,
                           .single_submit = true,
                           .overlap_events = false,
                           .sub_group_size = 1234})
                         .offload;
  const DiskOffload expected{.directory = "/scratch",
                             .option = "nvme_path",
                             .parameters = true,
                             .optimizer = true,
                             .tile_elements = 1234,
                             .buffers = 5,
                             .block_size = 8192,
                             .queue_depth = 3,
                             .single_submit = true,
                             .overlap_events = false};
  EXPECT_EQ(found, expected);
  const auto half =
      plan_from(R"({"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/d", "ratio": 0.5}})");
  EXPECT_EQ(half.offload->optimizer_share, 0.5);
}

TEST(DeepSpeedPlan, LossScalesGoToTheScaler) {
  const auto scaler = [](const DeepSpeed& options) {
    return detail::scaler_options(deepspeed_config(options, Dtype::kFp16).fp16, options.stage);
  };
  const auto dynamic =
      scaler({.initial_scale_power = 8, .loss_scale_window = 7, .hysteresis = 3, .min_loss_scale = 2});
  EXPECT_EQ(dynamic.init_scale, 256);
  EXPECT_EQ(dynamic.growth_interval, 7);
  EXPECT_EQ(dynamic.hysteresis, 3);
  EXPECT_EQ(dynamic.growth_delay, 1);
  EXPECT_EQ(dynamic.min_scale, 2);
  const auto fixed = scaler({.loss_scale = 128});
  EXPECT_EQ(fixed.init_scale, 128);
  EXPECT_FALSE(fixed.dynamic);
  // At stage 0 every overflow counts, and none is an error.
  EXPECT_TRUE(dynamic.fails_at_min_scale);
  const auto whole = scaler({.stage = 0, .hysteresis = 3, .min_loss_scale = 2});
  EXPECT_EQ(whole.hysteresis, 1);
  EXPECT_EQ(whole.min_scale, 2);
  EXPECT_FALSE(whole.fails_at_min_scale);
}

TEST(DeepSpeedPlan, GradientsInFewBitsAddUpInFloat32) {
  const auto averages = [](const std::string& text, Dtype dtype) {
    return detail::averages_every_micro_batch(parse_deepspeed_config(text, "ds.json").config, dtype);
  };
  EXPECT_FALSE(averages(R"({"zero_optimization": {"stage": 1}})", Dtype::kFp32));
  EXPECT_TRUE(averages(R"({"zero_optimization": {"stage": 2}})", Dtype::kFp32));
  for (const auto dtype : {Dtype::kFp16, Dtype::kBf16}) {
    EXPECT_TRUE(averages("{}", dtype));
    EXPECT_TRUE(averages(R"({"data_types": {"grad_accum_dtype": "fp32"}})", dtype));
    EXPECT_FALSE(averages(R"({"data_types": {"grad_accum_dtype": "bf16"}})", dtype));
  }
}

TEST(DeepSpeedPlan, ZeroPlusPlusIsForStage3) {
  const auto all = R"("zero_hpz_partition_size": 2, "zero_quantized_weights": true,
      "zero_quantized_nontrainable_weights": true, "zero_quantized_gradients": true,
      "zeropp_loco_param": {"err_beta": 0.5, "reset_T": 7}})";
  const ZeroPlusPlus expected{.secondary_shards = 2,
                              .quantized_weights = true,
                              .quantized_frozen_weights = true,
                              .quantized_gradients = true,
                              .gradient_neighbours = 2,
                              .error_feedback = ErrorFeedback{.decay = 0.5, .reset_every = 7}};
  EXPECT_EQ(plan_from(std::string(R"({"stage": 3, )") + all).zero_plus_plus, expected);
  EXPECT_EQ(plan_from(std::string(R"({"stage": 2, )") + all).zero_plus_plus, ZeroPlusPlus());
  EXPECT_EQ(plan_from(R"({"stage": 3})", 2).zero_plus_plus, ZeroPlusPlus());
  const auto defaults =
      plan_from(R"({"stage": 3, "zero_quantized_gradients": true, "zeropp_loco_param": {}})");
  EXPECT_EQ(defaults.zero_plus_plus.error_feedback, ErrorFeedback());
}

TEST(DeepSpeedPlan, ZeroPlusPlusFitsTheRanks) {
  const auto neighbours = [](int ranks_per_node) {
    return plan_from(R"({"stage": 3, "zero_quantized_gradients": true})", ranks_per_node)
        .zero_plus_plus.gradient_neighbours;
  };
  EXPECT_EQ(neighbours(2), 2) << "those of a node";
  EXPECT_EQ(neighbours(3), 1) << "nodes differ";
  EXPECT_EQ(plan_from(R"({"stage": 3, "zero_hpz_partition_size": 8})").zero_plus_plus.secondary_shards, 4);
  test::expect_error<ConfigError>([] { plan_from(R"({"stage": 3, "zero_hpz_partition_size": 3})"); },
                                  {"zero_hpz_partition_size (ds.json:1:", "divides 4 ranks", "got 3"});
}

// Names of Lightning's that are taken, so that its programs work, and change nothing: docs/deepspeed.md.
TEST(DeepSpeedPlan, SomeArgumentsAreTakenForTheirNamesOnly) {
  const DeepSpeed others{.params_buffer_count = 7,
                         .params_buffer_size = 7,
                         .max_in_cpu = 7,
                         .pin_memory = true,
                         .thread_count = 7,
                         .contiguous_gradients = false,
                         .allgather_partitions = false,
                         .reduce_scatter = false,
                         .zero_allow_untested_optimizer = false,
                         .partition_activations = true,
                         .cpu_checkpointing = true,
                         .contiguous_memory_optimization = true,
                         .synchronize_checkpoint_boundary = true};
  EXPECT_TRUE(plan(others) == plan(DeepSpeed{}));
}

TEST(DeepSpeedPlan, SaysWhatHasNoEffectAndRefusesWhatWouldChangeNumbers) {
  const auto config_of = [](const char* text) { return parse_deepspeed_config(text, "ds.json").config; };
  EXPECT_THAT(detail::without_effect(config_of(R"({"sparse_gradients": true})")),
              ::testing::ElementsAre(::testing::HasSubstr("sparse_gradients (ds.json:1:2) has no effect")));
  EXPECT_THAT(detail::without_effect(config_of("{}")), ::testing::IsEmpty());
  EXPECT_THAT(detail::without_effect(config_of(R"({"managed_gradient_accumulation": false,
      "dataloader_drop_last": true, "aio": {"use_gds": true}, "activation_checkpointing": {"number_checkpoints": 4},
      "optimizer": {"type": "AdamW", "params": {"fp32_optimizer_states": false}},
      "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bf16"}})")),
              ::testing::SizeIs(5));
  EXPECT_THAT(
      detail::without_effect(config_of(R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": true},
      "data_types": {"grad_accum_dtype": "fp32"}})")),
      ::testing::IsEmpty());
  test::expect_error<ConfigError>([&] { config_of(R"({"amp": {"enabled": true}})"); },
                                  {"amp.enabled", "fp16 or bf16"});
  EXPECT_THAT(detail::without_effect(config_of(R"({"gradient_allreduce_op": "sum"})")), ::testing::IsEmpty());
}

TEST(DeepSpeedPlan, KnowsWhatWindowsAddUpIn) {
  using deepspeed::Dtype;
  const auto otherwise = [](int stage, const std::string& wanted, Dtype computed,
                            const std::string& more = "") {
    const auto text = R"({"zero_optimization": {"stage": )" + std::to_string(stage) +
                      R"(}, "data_types": {"grad_accum_dtype": ")" + wanted + "\"}" + more + "}";
    return detail::adds_up_otherwise(parse_deepspeed_config(text, "ds.json").config, computed);
  };
  for (const int stage : {0, 1, 2, 3}) EXPECT_FALSE(otherwise(stage, "fp32", Dtype::kBf16));
  for (const int stage : {0, 1}) {
    EXPECT_FALSE(otherwise(stage, "bf16", Dtype::kBf16));
    EXPECT_TRUE(otherwise(stage, "bf16", Dtype::kFp32)) << "the model's type is float32";
    EXPECT_TRUE(otherwise(stage, "fp16", Dtype::kBf16));
  }
  EXPECT_TRUE(otherwise(2, "bf16", Dtype::kBf16));
  const std::string masters =
      R"(, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true})";
  EXPECT_FALSE(otherwise(2, "bf16", Dtype::kBf16, masters));
  EXPECT_TRUE(otherwise(2, "fp32", Dtype::kBf16, masters));
}

std::unique_ptr<Optimizer> made_of(const std::string& section) {
  const auto config = parse_deepspeed_config("{\"optimizer\": " + section + "}", "ds.json").config;
  const std::vector<NamedParameter> parameters{{"matrix", at::ones({2, 2})}, {"bias", at::ones({2})}};
  return detail::optimizer_of(config).create(parameters);
}

TEST(DeepSpeedOptimizers, AreThoseOfTheFile) {
  const std::pair<const char*, const char*> names[] = {{"Adam", "AdamW"},      {"AdamW", "AdamW"},
                                                       {"Adagrad", "Adagrad"}, {"Lion", "Lion"},
                                                       {"Lamb", "Lamb"},       {"SGD", "SGD"}};
  for (const auto& [type, name] : names) {
    const auto optimizer = made_of(std::string(R"({"type": ")") + type + R"(", "params": {"lr": 0.25}})");
    EXPECT_EQ(optimizer->name(), name);
    EXPECT_EQ(optimizer->groups()[0].lr, 0.25) << type;
  }
  const auto muon = made_of(R"({"type": "Muon", "params": {"lr": 0.5, "adam_lr": 0.125, "momentum": 0.75}})");
  EXPECT_EQ(muon->name(), "Muon");
  EXPECT_EQ(muon->groups()[0].lr, 0.5);
  EXPECT_EQ(muon->groups()[0].momentum, 0.75);
  EXPECT_EQ(muon->groups()[1].lr, 0.125);
  EXPECT_EQ(made_of(R"({"type": "Muon"})")->groups()[0].lr, 0.02);
}

TEST(DeepSpeedArguments, ThatSayOtherThanTheFileAreNamed) {
  const auto file = parse_deepspeed_config(R"({"zero_optimization": {"stage": 3}})", "ds.json").config;
  EXPECT_NO_THROW(detail::check_arguments({}, file, {})) << "defaults say nothing";
  EXPECT_NO_THROW(detail::check_arguments({.stage = 3}, file, {"stage"}));
  test::expect_error<ConfigError>(
      [&] { detail::check_arguments({}, file, {"stage"}); },
      {"strategy.stage", "zero_optimization.stage (ds.json:1:24)", "stage = 2", "= 3"});
  test::expect_error<ConfigError>([&] { detail::check_arguments({.offload_optimizer = true}, file, {}); },
                                  {"offload_optimizer", "zero_optimization.offload_optimizer.device"});
  test::expect_error<ConfigError>([&] { detail::check_arguments({.nvme_path = "/scratch"}, file, {}); },
                                  {"nvme_path", "/scratch"});
  test::expect_error<ConfigError>([&] { detail::check_arguments({.initial_scale_power = 8}, file, {}); },
                                  {"initial_scale_power", "8", "16"});
}

TEST(DeepSpeedArguments, ThatSayWhatTheFileSaysAreNotInTheWay) {
  const auto file = parse_deepspeed_config(
                        R"({"zero_optimization": {"stage": 3,
                            "offload_param": {"device": "nvme", "nvme_path": "/scratch"}}})",
                        "ds.json")
                        .config;
  EXPECT_NO_THROW(
      detail::check_arguments({.offload_params_device = deepspeed::OffloadDevice::kNvme}, file, {}));
  EXPECT_NO_THROW(detail::check_arguments({.nvme_path = "/scratch"}, file, {}));
  EXPECT_NO_THROW(detail::check_arguments({}, file, {"zero_optimization"}));
  test::expect_error<ConfigError>([&] { detail::check_arguments({.zero_optimization = false}, file, {}); },
                                  {"zero_optimization = false", "zero_optimization.stage = 3"});
  test::expect_error<ConfigError>([&] { detail::check_arguments({.nvme_path = "/other"}, file, {}); },
                                  {"nvme_path", "/other"});
}

TEST(DeepSpeedArguments, WithoutEffectAreSaidSo) {
  const auto run = detail::deepspeed_run({.stage = 2, .offload_parameters = true, .cpu_checkpointing = true});
  EXPECT_THAT(run.warnings,
              ::testing::ElementsAre(::testing::AllOf(::testing::HasSubstr("offload_parameters"),
                                                      ::testing::HasSubstr("below stage 3")),
                                     ::testing::HasSubstr("cpu_checkpointing")));
}

TEST(DeepSpeedPrecision, IsTheFilesUnlessItWasAskedFor) {
  const auto half = parse_deepspeed_config(R"({"fp16": {"enabled": true}})", "ds.json").config;
  EXPECT_TRUE(std::holds_alternative<Fp16Mixed>(detail::precision_of(half, Fp32{})));
  test::expect_error<ConfigError>([&] { detail::precision_of(half, Fp32{}, /*is_asked_for=*/true); },
                                  {"fp16.enabled (ds.json", "precision"});
  test::expect_error<ConfigError>([&] { detail::precision_of(half, Fp16Mixed{.scaler = {.init_scale = 8}}); },
                                  {"precision.init_scale", "initial_scale_power", "8"});
}

// Of a program's own, which computes in `dtype`.
struct OwnPrecision final : Precision {
  explicit OwnPrecision(at::ScalarType wanted) : dtype(wanted) {}
  std::string_view name() const override { return "own"; }
  at::ScalarType compute_dtype() const override { return dtype; }
  at::ScalarType dtype;
};

TEST(DeepSpeedPrecision, OfTheProgramIsKeptWhereTheFileSaysTheSame) {
  const auto half = parse_deepspeed_config(R"({"fp16": {"enabled": true}})", "ds.json").config;
  const auto own = std::make_shared<OwnPrecision>(at::kHalf);
  const auto kept = detail::precision_of(half, own);
  ASSERT_TRUE(std::holds_alternative<std::shared_ptr<Precision>>(kept));
  EXPECT_EQ(std::get<std::shared_ptr<Precision>>(kept), own);
  test::expect_error<ConfigError>(
      [&] { detail::precision_of(half, std::make_shared<OwnPrecision>(at::kFloat)); },
      {"fp16.enabled (ds.json", "precision"});
}

TEST(DeepSpeedPrecision, HasAFirstScaleThatIsFinite) {
  test::expect_error<ConfigError>(
      [] { parse_deepspeed_config(R"({"fp16": {"initial_scale_power": 200}})", "ds.json"); },
      {"fp16.initial_scale_power", "0..127", "200", "ds.json:1:"});
}

}  // namespace
}  // namespace lockstep
