// Which modules become units.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include <lockstep/testing/run_ranks.h>

#include "parallel/sharded/unit_cutter.h"
#include "parallel/sharded/unit_plan.h"

namespace lockstep::detail {
namespace {

namespace nn = torch::nn;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Block : nn::Module {
  Block() {
    register_module("a", a);
    register_module("b", b);
  }
  nn::Linear a{64, 64}, b{64, 64};
};

struct Stack : nn::Module {
  Stack() {
    register_module("embedding", embedding);
    register_module("blocks", blocks);
    register_parameter("head", embedding->weight);
    for (int i = 0; i < 3; ++i) blocks->push_back(std::make_shared<Block>());
  }
  nn::Embedding embedding{128, 64};
  nn::ModuleList blocks;
};

std::vector<std::string> unit_names(const std::vector<PlannedUnit>& plan) {
  std::vector<std::string> names;
  for (const auto& unit : plan) names.push_back(unit.name);
  return names;
}

std::vector<std::string> member_names(const PlannedUnit& unit) {
  std::vector<std::string> names;
  for (const auto& member : unit.members) names.push_back(member.name);
  return names;
}

TEST(UnitPlan, FindsRepeatedBlocksByItself) {
  const auto plan = plan_units(Stack(), WrapPolicy());
  EXPECT_THAT(unit_names(plan), ElementsAre("", "blocks.0", "blocks.1", "blocks.2"));
  EXPECT_THAT(member_names(plan[2]),
              ElementsAre("blocks.1.a.weight", "blocks.1.a.bias", "blocks.1.b.weight", "blocks.1.b.bias"));
}

TEST(UnitPlan, GoesByTypes) {
  const auto plan = plan_units(Stack(), types<nn::Linear, nn::Embedding>());
  EXPECT_THAT(unit_names(plan), ElementsAre("", "blocks.0.a", "blocks.0.b", "blocks.1.a", "blocks.1.b",
                                            "blocks.2.a", "blocks.2.b"));
  // The root's is the embedding's: what modules share belongs to the root.
  EXPECT_EQ(plan.front().members.size(), 1U);
}

TEST(UnitPlan, TakesTypesByName) {
  EXPECT_EQ(plan_units(Stack(), "Block").size(), 4U);
  EXPECT_EQ(plan_units(Stack(), "[Block, torch::nn::LinearImpl]").size(), 7U);
  EXPECT_EQ(plan_units(Stack(), "none").size(), 1U);
}

TEST(UnitPlan, GoesBySizeFromTheLeavesUp) {
  // A block holds 8,320 elements, a layer 4,160.
  EXPECT_THAT(unit_names(plan_units(Stack(), WrapPolicy::min_num_params(8000))),
              ElementsAre("", "blocks.0", "blocks.1", "blocks.2"));
  EXPECT_EQ(unit_names(plan_units(Stack(), "min_num_params=4000"))[1], "blocks.0.a");
}

TEST(UnitPlan, GoesByAFunction) {
  const auto plan = plan_units(
      Stack(), [](const nn::Module& module) { return dynamic_cast<const nn::LinearImpl*>(&module); });
  EXPECT_EQ(plan.size(), 7U);
}

TEST(UnitPlan, NamesTheTypesThatThereAreWhenNothingMatches) {
  try {
    plan_units(Stack(), "TransformerEncoderLayer");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("auto_wrap_policy matches no module of Stack"));
    EXPECT_THAT(error.what(), HasSubstr("Block"));
    EXPECT_THAT(error.what(), HasSubstr("Linear"));
  }
}

TEST(UnitPlan, NamesTheWordThatMatchesNothing) {
  const auto message = [](const WrapPolicy& policy) {
    try {
      plan_units(Stack(), policy);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message("Lienar"), HasSubstr("auto_wrap_policy matches no module of Stack"));
  EXPECT_THAT(message(WrapPolicy::modules({"Linear"}, {}, {".nowhere"})), HasSubstr("\".nowhere\""));
  EXPECT_THAT(message(WrapPolicy::modules({"Linear"}, {"nobody"}, {})), HasSubstr("\"nobody\""));
  EXPECT_EQ(message("Linear"), "");
}

TEST(UnitPlan, TakesASetOfTypesOfWhichSomeAreThere) {
  const WrapPolicy policy = "Block,TransformerEncoderLayer";
  EXPECT_EQ(unit_names(plan_units(Stack(), policy)), unit_names(plan_units(Stack(), "Block")));
  EXPECT_EQ(note_on_units(Stack(), policy),
            "auto_wrap_policy: no module of Stack is a \"TransformerEncoderLayer\"");
  EXPECT_EQ(note_on_units(Stack(), "Block"), "");
  EXPECT_THAT([&] { plan_units(Stack(), {}, WrapPolicy("Block,Nobody")); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("\"Nobody\" of ignored_modules")));
}

struct TinyBlock : nn::Module {
  explicit TinyBlock(int out) { register_module("layer", nn::Linear(8, out)); }
};

struct TwoTinyBlocks : nn::Module {
  TwoTinyBlocks() {
    register_module("first", std::make_shared<TinyBlock>(8));
    register_module("second", std::make_shared<TinyBlock>(10));
  }
};

TEST(UnitPlan, SaysWhichBlocksAreTooSmall) {
  EXPECT_EQ(note_on_units(Stack(), {}), "");
  const nn::Sequential layers(nn::Linear(8, 8), nn::Linear(8, 10), nn::ReLU(), nn::ReLU());
  EXPECT_EQ(plan_units(*layers, {}).size(), 1U);
  EXPECT_EQ(note_on_units(*layers, {}), "");  // nobody would want these as units
  const TwoTinyBlocks small;
  EXPECT_EQ(
      note_on_units(small, {}),
      "auto_wrap_policy: these repeated blocks have less than 4096 elements, and are sharded together with "
      "what is around them: 2 TinyBlock of at most 90 elements; to shard them block by block, name their "
      "type in auto_wrap_policy");
  EXPECT_THAT(note_on_units(small, {}, "zero_optimization.leaf_module"),
              HasSubstr("in zero_optimization.leaf_module.classes of DeepSpeed's file"));
  EXPECT_EQ(note_on_units(small, WrapPolicy::none()), "");
}

TEST(UnitPlan, SaysWhatThereIsAndWhatAPolicyAskedFor) {
  const auto message = [](const nn::Module& module, const WrapPolicy& policy) {
    try {
      plan_units(module, policy);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto nothing = [](const nn::Module&) { return false; };
  EXPECT_THAT(message(*nn::Linear(2, 2), "Block"), HasSubstr("expected one of Linear; got Block"));
  EXPECT_THAT(message(*nn::Linear(2, 2), nothing),
              HasSubstr("expected one of Linear; got a function that chooses none of them"));
  EXPECT_THAT(message(*nn::ReLU(), nothing),
              HasSubstr("expected a module with parameters, of which it has none"));
  EXPECT_THAT(message(Stack(), WrapPolicy::type_names({})), HasSubstr("got a policy that names nothing"));
}

TEST(WrapPolicy, IsPrintedAsItIsRead) {
  for (const auto* text : {"repeated_blocks", "none", "min_num_params=1000000", "Linear,Embedding"})
    EXPECT_EQ(WrapPolicy(text).print(), text);
  EXPECT_THROW(WrapPolicy("min_num_params=many"), ConfigError);
  EXPECT_THROW(WrapPolicy("1x"), ConfigError);
  EXPECT_THROW(WrapPolicy("A,,B"), ConfigError);
}

// Of float32 shards, and of their copies in 16 bits, which a single rank has not.
TEST(UnitCutter, CountsTheBytesOfShards) {
  const Stack stack;
  const auto units = plan_units(stack, WrapPolicy());
  const std::uint64_t elements = 128 * 64 + 6 * (64 * 64 + 64);
  const ShardingPlan plain, half{.mixed_precision = {.param_dtype = at::kBFloat16}};
  const std::unordered_set<const at::TensorImpl*> none;
  const ShardMesh alone;
  EXPECT_EQ(UnitCutter(plain, alone, alone, none).bytes_of_shards(units), 4 * elements);
  EXPECT_EQ(UnitCutter(half, alone, alone, none).bytes_of_shards(units), 4 * elements);
  lockstep::testing::run_ranks(2, [&](const Communicator& comm) {
    const auto mesh = make_shard_mesh(comm, 2);
    EXPECT_EQ(UnitCutter(plain, mesh, alone, none).bytes_of_shards(units), 4 * elements / 2);
    EXPECT_EQ(UnitCutter(half, mesh, alone, none).bytes_of_shards(units), 6 * elements / 2);
  });
}

}  // namespace
}  // namespace lockstep::detail
