#include <set>
#include <string>
#include <string_view>
#include <variant>

#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/strategy/strategy_options.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

TEST(StrategyOptions, TakeTheNamesThatPythonTakes) {
  const Fsdp fsdp{.sharding_strategy = "SHARD_GRAD_OP",
                  .activation_checkpointing = true,
                  .mixed_precision = torch::kBFloat16,
                  .backward_prefetch = "BACKWARD_POST",
                  .state_dict_type = "sharded",
                  .start_method = "spawn"};
  EXPECT_EQ(fsdp.sharding_strategy, ShardingStrategy::kShardGradOp);
  EXPECT_EQ(fsdp.backward_prefetch, BackwardPrefetch::kBackwardPost);
  EXPECT_EQ(fsdp.state_dict_type, StateDictType::kSharded);
  EXPECT_EQ(fsdp.start_method, StartMethod::kSpawn);
  const Ddp ddp{.ddp_comm_hook = "powerSGD", .ddp_comm_wrapper = "bf16_compress", .start_method = "popen"};
  EXPECT_EQ(ddp.ddp_comm_hook, DdpCommHook::kPowerSgd);
  EXPECT_EQ(ddp.ddp_comm_wrapper, DdpCommWrapper::kBf16Compress);
  EXPECT_EQ(ddp.start_method, StartMethod::kAuto);
  const DeepSpeed deepspeed{.offload_optimizer_device = "nvme"};
  EXPECT_EQ(deepspeed.offload_optimizer_device, deepspeed::OffloadDevice::kNvme);
  test::expect_error<ConfigError>([] { return Fsdp{.backward_prefetch = "BACKWARD"}; },
                                  {"BACKWARD_PRE", "BACKWARD_POST", "'BACKWARD'"});
}

TEST(StrategyChoices, KnowEveryNameOfLightning) {
  std::set<std::string> names;
  for (const auto& row : strategy_choices()) EXPECT_TRUE(names.emplace(row.name).second) << row.name;
  for (const char* name : {"auto",
                           "single_device",
                           "ddp",
                           "ddp_spawn",
                           "ddp_fork",
                           "ddp_notebook",
                           "ddp_find_unused_parameters_true",
                           "ddp_find_unused_parameters_false",
                           "ddp_spawn_find_unused_parameters_true",
                           "ddp_fork_find_unused_parameters_true",
                           "ddp_notebook_find_unused_parameters_true",
                           "fsdp",
                           "fsdp_cpu_offload",
                           "deepspeed",
                           "deepspeed_stage_1",
                           "deepspeed_stage_2",
                           "deepspeed_stage_2_offload",
                           "deepspeed_stage_3",
                           "deepspeed_stage_3_offload",
                           "deepspeed_stage_3_offload_nvme",
                           "single_xla",
                           "xla",
                           "xla_debug"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(StrategyOptions, AreGivenByName) {
  const StrategyOptions ddp = "ddp", stage_2 = std::string("deepspeed_stage_2"),
                        fork = std::string_view("DDP_Fork");
  EXPECT_TRUE(std::holds_alternative<Ddp>(ddp));
  EXPECT_EQ(std::get<DeepSpeed>(stage_2).stage, 2);
  EXPECT_EQ(std::get<Ddp>(fork).start_method, StartMethod::kFork);
  EXPECT_TRUE(
      std::holds_alternative<std::shared_ptr<Strategy>>(StrategyOptions(make_strategy(SingleDevice{}, 1))));
  StrategyOptions changed = "dpp";
  EXPECT_EQ(changed.refused_name(), "dpp");
  changed = Fsdp{};
  EXPECT_EQ(changed.refused_name(), "");
}

TEST(MakeStrategy, AutoIsDdpFromTwoRanksOn) {
  EXPECT_EQ(make_strategy(Auto{}, 1)->name(), "single_device");
  EXPECT_EQ(make_strategy(Auto{}, 2)->name(), "ddp");
  EXPECT_EQ(make_strategy(Ddp{}, 1)->name(), "ddp");
  EXPECT_EQ(make_strategy(Fsdp{}, 2)->name(), "fsdp");
  test::expect_error<ConfigError>([] { make_strategy(SingleDevice{}, 2); }, {"single_device", "2 ranks"});
}

TEST(MakeStrategy, OnXlaIsXlas) {
  constexpr auto kXla = c10::DeviceType::XLA;
  EXPECT_EQ(make_strategy(Auto{}, 1, kXla)->name(), "single_xla");
  EXPECT_EQ(make_strategy(Auto{}, 2, kXla)->name(), "xla");
  EXPECT_EQ(make_strategy("single_xla", 1, kXla)->name(), "single_xla");
  EXPECT_EQ(make_strategy("xla", 1, kXla)->name(), "xla");
  EXPECT_EQ(make_strategy(Ddp{}, 1, kXla)->name(), "ddp");
  test::expect_error<ConfigError>([] { make_strategy(SingleXla{}, 2, kXla); },
                                  {"single_xla", "2 ranks", "xla"});
  for (const StrategyOptions& other :
       {StrategyOptions(Ddp{}), StrategyOptions(Fsdp{}), StrategyOptions("deepspeed")})
    test::expect_error<ConfigError>([&] { make_strategy(other, 2, kXla); }, {"devices of XLA", "xla"});
}

TEST(DevicesOfRun, AreThoseThatTheStrategyChooses) {
  EXPECT_EQ(devices_of_run(Ddp{}, "cpu", 2).count, 2);
  for (const StrategyOptions& chosen : {StrategyOptions(SingleXla{}), StrategyOptions(Xla{})}) {
    test::expect_error<ConfigError>([&] { devices_of_run(chosen, "cpu", 1); },
                                    {"single_xla", "auto, xla or tpu", "cpu"});
    test::expect_error<ConfigError>([&] { devices_of_run(chosen, "auto", 1); },
                                    {"accelerator xla", "pjrt_plugin"});
  }
}

TEST(RankStart, IsThatOfTheStrategy) {
  EXPECT_EQ(rank_start(Xla{.start_method = "spawn"})->start_method, StartMethod::kSpawn);
  EXPECT_FALSE(rank_start(SingleXla{}));
}

}  // namespace
}  // namespace lockstep
