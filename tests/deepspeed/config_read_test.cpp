// Files of DeepSpeed's users, and what is made of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/deepspeed/config.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using deepspeed::AutoOr;
using deepspeed::OffloadDevice;
using test::expect_error;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

ReadDeepSpeedConfig read(std::string_view text) { return parse_deepspeed_config(text, "ds.json"); }
DeepSpeedConfig config(std::string_view text) { return read(text).config; }

void expect_refused(std::string_view text, const std::vector<std::string>& parts) {
  SCOPED_TRACE(std::string(text));
  expect_error<ConfigError>([&] { read(text); }, parts);
}

// The file of the PyTorch Lightning tutorials.
constexpr const char* kTutorial = R"({
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {
      "device": "cpu",
      "pin_memory": true
    },
    "allgather_bucket_size": 2e8,
    "reduce_bucket_size": 2e8
  },
  "activation_checkpointing": {
    "partition_activations": true,
    "cpu_checkpointing": true
  },
  "fp16": {
    "enabled": true
  },
  "gradient_clipping": 1.0
})";

TEST(DeepSpeedConfig, ReadsTheFileOfTheTutorials) {
  const auto c = config(kTutorial);
  EXPECT_EQ(c.zero_optimization.stage, 2);
  EXPECT_EQ(c.zero_optimization.offload_optimizer.device, OffloadDevice::kCpu);
  EXPECT_EQ(c.zero_optimization.allgather_bucket_size, 200'000'000);
  EXPECT_EQ(c.zero_optimization.reduce_bucket_size.value, 200'000'000);
  EXPECT_TRUE(c.activation_checkpointing.partition_activations);
  EXPECT_TRUE(c.activation_checkpointing.cpu_checkpointing);
  EXPECT_TRUE(c.fp16.enabled.value);
  EXPECT_EQ(c.gradient_clipping.value, 1.0);
}

TEST(DeepSpeedConfig, ReadsAFile) {
  test::TemporaryFolder folder;
  const auto file = folder.file("ds_config.json", kTutorial);
  EXPECT_EQ(read_deepspeed_config(file).config.zero_optimization.stage, 2);
  EXPECT_EQ(read_deepspeed_config(file).config.given.at("fp16.enabled"), file.string() + ":16:5");
  expect_error<ConfigError>([&] { read_deepspeed_config(folder / "none.json"); },
                            {"none.json", "no such file"});
  expect_error<ConfigError>([&] { read_deepspeed_config(folder.path()); }, {"it is a folder"});
}

TEST(DeepSpeedConfig, AnEmptyFileHasTheDefaultsOfDeepSpeedsSource) {
  const auto c = config("{}");
  EXPECT_EQ(c.gradient_clipping.value, 1.0);
  EXPECT_EQ(c.zero_optimization.stage, 0);
  EXPECT_EQ(c.zero_optimization.reduce_bucket_size.value, 500'000'000);
  EXPECT_EQ(c.zero_optimization.sub_group_size, 1'000'000'000);
  EXPECT_EQ(c.zero_optimization.stage3_prefetch_bucket_size.value, 50'000'000);
  EXPECT_EQ(c.zero_optimization.stage3_param_persistence_threshold.value, 100'000);
  EXPECT_TRUE(c.zero_optimization.offload_optimizer.pin_memory);
  EXPECT_FALSE(c.train_batch_size.value.has_value());
  EXPECT_TRUE(c.given.empty());
}

TEST(DeepSpeedConfig, TakesNumbersAsDeepSpeedDoes) {
  EXPECT_EQ(config(R"({"zero_optimization": {"sub_group_size": 1e12}})").zero_optimization.sub_group_size,
            1'000'000'000'000);
  EXPECT_EQ(config(R"({"zero_optimization": {"reduce_bucket_size": "5e8"}})")
                .zero_optimization.reduce_bucket_size.value,
            500'000'000);
  EXPECT_EQ(config(R"({"train_batch_size": 32.0})").train_batch_size.value, 32);
  EXPECT_EQ(config(R"({"zero_optimization": {"stage3_model_persistence_threshold": 9223372036854775807}})")
                .zero_optimization.stage3_model_persistence_threshold,
            std::numeric_limits<std::int64_t>::max());
  EXPECT_TRUE(config(R"({"fp16": {"enabled": "true"}})").fp16.enabled.value);
  EXPECT_TRUE(config(R"({"fp16": {"enabled": 1}})").fp16.enabled.value);
  EXPECT_EQ(config(R"({"gradient_clipping": 0})").gradient_clipping.value, 0.0);
}

TEST(DeepSpeedConfig, RefusesValuesWithTheirPlaceAndWhatIsAccepted) {
  expect_refused("{\n \"zero_optimization\": {\"stage\": 4}}",
                 {"zero_optimization.stage", "expected an integer 0..3", "got 4", "ds.json:2:33"});
  expect_refused(R"({"zero_optimization": {"stage": -1}})", {"0..3", "got -1"});
  expect_refused(R"({"zero_optimization": {"reduce_bucket_size": 2.5}})", {"an integer", "got 2.5"});
  expect_refused(R"({"zero_optimization": {"reduce_bucket_size": -2e8}})", {">= 1", "got -2e8"});
  expect_refused(R"({"zero_optimization": {"reduce_bucket_size": 1e30}})", {"an integer", "got 1e30"});
  expect_refused(R"({"zero_optimization": {"reduce_bucket_size": true}})", {"an integer", "got true"});
  expect_refused(R"({"zero_optimization": {"stage": [2]}})", {"zero_optimization.stage", "got a list"});
  expect_refused(R"({"zero_optimization": {"stage": {}}})", {"zero_optimization.stage", "got an object"});
  expect_refused(R"({"zero_optimization": {"offload_optimizer": {"device": "gpu"}}})",
                 {"one of none, cpu, nvme", "got 'gpu'"});
  expect_refused(R"({"zero_optimization": {"offload_optimizer": {"device": "cup"}}})", {"did you mean cpu?"});
  expect_refused(R"({"zero_optimization": {"offload_optimizer": {"ratio": 1.5}}})", {"0..1", "got 1.5"});
  expect_refused(R"({"zero_optimization": [1]})", {"zero_optimization", "a section", "got a list"});
  expect_refused(R"({"fp16": true})", {"fp16", "a section", "got true"});
  expect_refused(R"({"gradient_clipping": "yes"})", {"a finite number", "got 'yes'"});
  expect_refused(R"({"communication_data_type": "fp64"})", {"communication_data_type", "fp32, fp16, bf16"});
  expect_refused(R"({"csv_monitor": {"job_name": 7}})", {"csv_monitor.job_name", "text", "got 7"});
  expect_refused(R"({"comms_logger": {"prof_ops": ["all_reduce", 7]}})", {"ds.json:1:46", "got 7"});
  expect_refused(R"({"checkpoint": {"tag_validation": "Panic"}})", {"Warn, Ignore, Fail", "Panic"});
  expect_refused(R"({"gradient_allreduce_op": "max"})", {"mean, sum", "max"});
  expect_refused(R"({"train_batch_size": 0})", {"train_batch_size", ">= 1", "got 0"});
}

TEST(DeepSpeedConfig, ReadsValuesForOthersAsDeepSpeedDoes) {
  const auto clipping = [](const std::string& value, const std::string& meaning) {
    SCOPED_TRACE(value);
    const auto result = read("{\"gradient_clipping\": " + value + "}");
    EXPECT_THAT(result.warnings, ElementsAre(AllOf(HasSubstr("ds.json:1:23: gradient_clipping " + value),
                                                   HasSubstr(meaning))));
    return result.config.gradient_clipping.value;
  };
  EXPECT_EQ(clipping("-1", "clips nothing"), 0.0);
  EXPECT_EQ(clipping("-0.5", "clips nothing"), 0.0);
  EXPECT_EQ(clipping("1e400", "clips nothing"), 0.0);
  EXPECT_EQ(clipping("Infinity", "clips nothing"), 0.0);
  EXPECT_EQ(clipping("false", "clips nothing"), 0.0);
  EXPECT_EQ(clipping("true", "norm of 1"), 1.0);
  expect_refused(R"({"gradient_clipping": null})", {"gradient_clipping", "got null"});

  const auto stage = [](const std::string& value) {
    return config(R"({"zero_optimization": {"stage": )" + value + "}}").zero_optimization.stage;
  };
  EXPECT_EQ(stage("true"), 1);
  EXPECT_EQ(stage("false"), 0);
  EXPECT_EQ(stage("\"2\""), 2);
  expect_refused(R"({"zero_optimization": {"stage": null}})", {"zero_optimization.stage", "got null"});

  EXPECT_FALSE(config(R"({"prescale_gradients": null})").prescale_gradients);
  EXPECT_FALSE(config(R"({"memory_breakdown": null, "dump_state": null})").dump_state);
  EXPECT_FALSE(config(R"({"zero_force_ds_cpu_optimizer": null})").zero_force_ds_cpu_optimizer);
  expect_refused(R"({"wall_clock_breakdown": null})", {"wall_clock_breakdown", "got null"});
}

TEST(DeepSpeedConfig, ReadsSchedulesAsDeepSpeedDoes) {
  const auto schedule = [](const std::string& type, const std::string& params) {
    return config(R"({"scheduler": {"type": ")" + type + R"(", "params": {)" + params + "}}}").scheduler;
  };
  EXPECT_TRUE(std::get<deepspeed::WarmupLR>(schedule("WarmupLR", R"("warmup_max_lr": null)"))
                  .warmup_max_lr.value.empty());
  const auto decay = schedule("WarmupDecayLR", R"("warmup_max_lr": null, "total_num_steps": 9)");
  EXPECT_TRUE(std::get<deepspeed::WarmupDecayLR>(decay).warmup_max_lr.value.empty());
  for (const std::string type : {"Linear", "LOG", "cosine"})
    expect_refused(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": ")" + type + "\"}}}",
                   {"scheduler.params.warmup_type", "one of log, linear", type});
}

TEST(DeepSpeedConfig, StepsBetweenLinesMayBeNegativeOrInfinite) {
  const auto steps = [](const std::string& value) {
    return config("{\"steps_per_print\": " + value + "}").steps_per_print;
  };
  EXPECT_EQ(steps("-1"), 1);
  EXPECT_EQ(steps("-3"), 3);
  EXPECT_EQ(steps("true"), 1);
  EXPECT_EQ(steps("Infinity"), std::nullopt);
  EXPECT_EQ(steps("1e9"), 1'000'000'000);
  expect_refused(R"({"steps_per_print": 0})",
                 {"steps_per_print", ">= 1", "got 0"});  // DeepSpeed divides by it
  expect_refused(R"({"steps_per_print": false})", {"steps_per_print", "got false"});
}

TEST(DeepSpeedConfig, ValuesOfAioAreReadWhereSomethingIsOnADisk) {
  const auto nothing = read(R"({"aio": {"block_size": null, "thread_count": null, "overlap_events": null}})");
  EXPECT_EQ(nothing.config.aio.block_size, deepspeed::Aio{}.block_size);
  EXPECT_EQ(nothing.config.aio.intra_op_parallelism, deepspeed::Aio{}.intra_op_parallelism);
  EXPECT_THAT(nothing.warnings, IsEmpty());
  EXPECT_THAT(read(R"({"aio": {"block_size": "a"}})").warnings,
              ElementsAre(HasSubstr("aio.block_size a has no effect without device nvme")));
  const std::string disk = R"("zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme",
                           "nvme_path": "/tmp"}}})";
  expect_refused(R"({"aio": {"queue_depth": null}, )" + disk, {"aio.queue_depth", "got null"});
  expect_refused(R"({"aio": {"block_size": "a"}, )" + disk, {"aio.block_size", "got 'a'"});
}

TEST(DeepSpeedConfig, NamesAreReadInAnyCase) {
  EXPECT_EQ(config(R"({"communication_data_type": "BF16"})").communication_data_type,
            deepspeed::Dtype::kBf16);
  EXPECT_EQ(config(R"({"checkpoint": {"tag_validation": "FAIL"}})").checkpoint.tag_validation,
            deepspeed::TagValidation::kFail);
}

TEST(DeepSpeedConfig, RefusesUnknownKeysOfStrictSectionsWithTheKeyThatWasMeant) {
  expect_refused("{\"zero_optimization\": {\n  \"stge\": 2}}",
                 {"unknown key zero_optimization.stge", "ds.json:2:3", "did you mean stage?"});
  expect_refused(R"({"zero_optimization": {"offload_param": {"buffer_cont": 5}}})",
                 {"did you mean buffer_count?"});
  expect_refused(R"({"zero_optimization": {"aio": {}}})",
                 {"unknown key zero_optimization.aio", "aio belongs to the top level"});
  for (const char* section : {"fp16", "bf16", "tensorboard", "csv_monitor", "comms_logger"})
    expect_refused("{\"" + std::string(section) + "\": {\"quux\": 1}}",
                   {"unknown key " + std::string(section) + ".quux"});
  expect_refused(R"({"timers": {"throughput": {"quux": 1}}})", {"unknown key timers.throughput.quux"});
}

TEST(DeepSpeedConfig, WarnsOfUnknownKeysElsewhere) {
  EXPECT_THAT(read("{\n \"gradient_cliping\": 0.5}").warnings,
              ElementsAre(AllOf(HasSubstr("ds.json:2:2"), HasSubstr("unknown key gradient_cliping"),
                                HasSubstr("did you mean gradient_clipping?"))));
  EXPECT_THAT(read(R"({"stage": 2})").warnings, ElementsAre(HasSubstr("stage belongs to zero_optimization")));
  for (const char* section :
       {"aio", "activation_checkpointing", "flops_profiler", "checkpoint", "data_types", "amp", "timers"})
    EXPECT_THAT(read("{\"" + std::string(section) + "\": {\"quux\": 1}}").warnings,
                ElementsAre(HasSubstr("unknown key " + std::string(section) + ".quux")));
}

TEST(DeepSpeedConfig, SaysOnceThatAKnownSectionIsNotSupported) {
  EXPECT_THAT(read(R"({"autotuning": {"enabled": true, "fast": false}})").warnings,
              ElementsAre(AllOf(HasSubstr("ds.json:1:2"), HasSubstr("autotuning is not supported"))));
  EXPECT_THAT(
      read(R"({"elasticity": {"enabled": false}, "wandb": null, "graph_harvesting": false})").warnings,
      IsEmpty());
  const auto adamw = [](const std::string& key) {
    return R"({"optimizer": {"type": "AdamW", "params": {"torch_adam": true, ")" + key + R"(": true}}})";
  };
  for (const auto* key : {"foreach", "fused"})
    EXPECT_THAT(read(adamw(key)).warnings,
                ElementsAre(HasSubstr("optimizer.params." + std::string(key) + " is not supported")));
  EXPECT_THAT(read(R"({"amp": {"enabled": false, "opt_level": "O1"}})").warnings,
              ElementsAre(HasSubstr("amp.opt_level is not supported")));
}

TEST(DeepSpeedConfig, WarnsOfSettingsWithoutEffect) {
  const auto activations = [](const std::string& beside) {
    return read("{\"activation_checkpointing\": {\"contiguous_memory_optimization\": true" + beside + "}}")
        .warnings;
  };
  EXPECT_THAT(activations(""), ElementsAre(HasSubstr("wants partition_activations beside it")));
  EXPECT_THAT(
      activations(R"(, "partition_activations": true)"),
      ElementsAre(HasSubstr("partition_activations"), HasSubstr("wants number_checkpoints beside it")));
  EXPECT_THAT(read(R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})").warnings,
              ElementsAre(AllOf(HasSubstr("zero_optimization.offload_param (ds.json:1:36)"),
                                HasSubstr("below stage 3"))));
  EXPECT_THAT(read(R"({"zero_optimization": {"stage": 2, "zero_hpz_partition_size": 2}})").warnings,
              ElementsAre(HasSubstr("zero_hpz_partition_size (ds.json:1:36) has no effect below stage 3")));
  EXPECT_THAT(read(R"({"zero_optimization": {"stage": 3, "zeropp_loco_param": {"err_beta": 0.5}}})").warnings,
              ElementsAre(HasSubstr("has no effect without zero_quantized_gradients")));
  EXPECT_THAT(
      read(
          R"({"zero_optimization": {"stage": 2, "zero_quantized_gradients": true, "zeropp_loco_param": {}}})")
          .warnings,
      UnorderedElementsAre(HasSubstr("zero_quantized_gradients (ds.json:1:36) has no effect below stage 3"),
                           HasSubstr("zeropp_loco_param (ds.json:1:70) has no effect below stage 3")));
  EXPECT_THAT(read(R"({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}})").warnings,
              ElementsAre(HasSubstr("no effect at stage 0")));
  EXPECT_THAT(
      read(
          R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "/x"}}})")
          .warnings,
      ElementsAre(HasSubstr("nvme is taken for cpu")));
}

TEST(DeepSpeedConfig, WarnsOfARunThatIsShorterThanItsWarmUp) {
  const auto warnings = [](const std::string& total) {
    return read(R"({"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": )" + total + "}}}")
        .warnings;
  };
  EXPECT_THAT(warnings("999"), ElementsAre(HasSubstr("total_num_steps (ds.json:1:53) is less than")));
  EXPECT_THAT(warnings("1000"), IsEmpty());
}

TEST(DeepSpeedConfig, TakesOldNames) {
  const auto zero = [](const std::string& inside) {
    return read("{\"zero_optimization\": {\"stage\": 3, " + inside + "}}");
  };
  EXPECT_EQ(read(R"({"zero_optimization": true})").config.zero_optimization.stage, 1);
  EXPECT_EQ(read(R"({"zero_optimization": false})").config.zero_optimization.stage, 0);
  EXPECT_TRUE(config(R"({"bfloat16": {"enabled": true}})").bf16.enabled.value);
  EXPECT_EQ(config(R"({"aio": {"thread_count": 4}})").aio.intra_op_parallelism, 4);
  EXPECT_EQ(config(R"({"aio": {"intra_op_parallelism": 4}})").aio.intra_op_parallelism, 4);
  EXPECT_FALSE(config(R"({"bf16": {"check_overflow": false}})").bf16.check_grad_overflow);
  const auto offloaded = zero(R"("cpu_offload": true, "cpu_offload_param": true)");
  EXPECT_EQ(offloaded.config.zero_optimization.offload_optimizer.device, OffloadDevice::kCpu);
  EXPECT_EQ(offloaded.config.zero_optimization.offload_param.device, OffloadDevice::kCpu);
  EXPECT_THAT(offloaded.warnings,
              ElementsAre(HasSubstr("cpu_offload is deprecated; use offload_optimizer"),
                          HasSubstr("cpu_offload_param is deprecated; use offload_param")));
  EXPECT_EQ(zero(R"("cpu_offload": false)").config.zero_optimization.offload_optimizer.device,
            OffloadDevice::kNone);
  EXPECT_TRUE(zero(R"("stage3_gather_fp16_weights_on_model_save": true)")
                  .config.zero_optimization.stage3_gather_16bit_weights_on_model_save);
  EXPECT_EQ(zero(R"("prefetch_bucket_size": 7)").config.zero_optimization.stage3_prefetch_bucket_size.value,
            7);
  EXPECT_THAT(zero(R"("cpu_offload_use_pin_memory": true)").warnings, ElementsAre(HasSubstr("no effect")));
  EXPECT_THAT(zero(R"("grad_hooks": true)").warnings, ElementsAre(HasSubstr("documents")));
  expect_refused(R"({"zero_optimization": {"cpu_offload": true, "offload_optimizer": {}}})",
                 {"cpu_offload and offload_optimizer", "ds.json:1:24", "ds.json:1:45"});
}

TEST(DeepSpeedConfig, AutoIsKeptWhereSomebodyFillsIt) {
  const auto c =
      config(R"({"train_batch_size": "auto", "gradient_clipping": "auto", "fp16": {"enabled": "auto"},
      "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "weight_decay": "auto"}},
      "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_max_lr": "auto"}},
      "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}})");
  EXPECT_TRUE(c.train_batch_size.is_auto);
  EXPECT_TRUE(c.gradient_clipping.is_auto);
  EXPECT_EQ(c.gradient_clipping.value, 1.0) << "DeepSpeed's default meanwhile";
  EXPECT_TRUE(c.fp16.enabled.is_auto);
  EXPECT_TRUE(c.zero_optimization.reduce_bucket_size.is_auto);
  EXPECT_EQ(c.zero_optimization.reduce_bucket_size.value, 500'000'000);
  EXPECT_TRUE(std::get<deepspeed::AdamW>(c.optimizer).betas.is_auto);
  EXPECT_TRUE(std::get<deepspeed::WarmupDecayLR>(c.scheduler).total_num_steps.is_auto);
  EXPECT_TRUE(c.autos.contains("scheduler.params.total_num_steps"));
  EXPECT_FALSE(c.autos.contains("zero_optimization.stage"));
}

TEST(DeepSpeedConfig, AutoKeepsItsDefaultWhereAConfigurationIsAssigned) {
  const std::string text = R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto"}}})";
  auto c = config(text);
  auto taken = std::move(c);
  c = taken;
  const auto& schedule = std::get<deepspeed::WarmupLR>(c.scheduler);
  EXPECT_TRUE(schedule.warmup_min_lr.is_auto);
  EXPECT_EQ(schedule.warmup_min_lr.value, deepspeed::PerGroup{0.0});
}

TEST(DeepSpeedConfig, AutoIsTheDefaultInStrictSectionsAndRefusedElsewhere) {
  EXPECT_EQ(config(R"({"zero_optimization": {"allgather_bucket_size": "auto"}})")
                .zero_optimization.allgather_bucket_size,
            500'000'000);
  expect_refused(R"({"steps_per_print": "auto"})", {"steps_per_print", "got 'auto'"});
}

TEST(DeepSpeedConfig, FillsOnlyWhatIsAuto) {
  AutoOr<double> given = 0.5, open = 1.0;
  open.is_auto = true;
  given.fill(3.0);
  open.fill(3.0);
  EXPECT_EQ(given, AutoOr<double>(0.5));
  EXPECT_EQ(open, AutoOr<double>(3.0));
}

TEST(DeepSpeedConfig, NullSectionsAreAbsent) {
  const auto c =
      config(R"({"aio": null, "zero_optimization": {"offload_optimizer": null}, "steps_per_print": null})");
  EXPECT_EQ(c.zero_optimization.offload_optimizer.device, OffloadDevice::kNone);
  EXPECT_FALSE(c.steps_per_print);
}

}  // namespace
}  // namespace lockstep
