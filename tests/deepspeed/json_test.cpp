// What is written is what was read, for every key there is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <lockstep/base/option_visitor.h>
#include <lockstep/base/options.h>
#include <lockstep/deepspeed/config.h>

#include "base/option_keys.h"
#include "deepspeed/read_config.h"

namespace lockstep {
namespace {

using nlohmann::json;

std::string rewritten(const std::string& text) {
  return to_json(parse_deepspeed_config(text, "ds.json").config);
}

/// One key, and a value for it that is not its default.
struct Key {
  std::string path;
  std::string value;  ///< JSON
};

class Keys final : public KeyedVisitor {
 public:
  std::vector<Key> all;

  void visit_field(OptionField& field) override { all.push_back({key(field.name()), other_value(field)}); }
  void visit_choice(OptionChoice&) override {}  // tested below

 private:
  static std::string other_value(OptionField& field) {
    const auto info = field.info();
    if (info.type.starts_with("bool")) return field.print() == "true" ? "false" : "true";
    if (info.type.starts_with("name")) {
      const bool is_first = field.print().find(info.names[0]) != std::string::npos;
      return '"' + info.names[is_first ? 1 : 0] + '"';
    }
    if (info.type.starts_with("list")) return R"(["a", "b \"c\", \u0007ä"])";
    if (info.type.starts_with("text") || info.type.starts_with("path")) return R"("/a b/\"ü\"")";
    return field.range().high == 1 ? "0.5" : "3";
  }
};

std::vector<Key> every_key() {
  Keys keys;
  DeepSpeedConfig config;
  describe(keys, config);
  return keys.all;
}

// Settings that contradict the defaults need company.
json company_of(const std::string& path) {
  if (path.ends_with("offload_optimizer.ratio")) return {{"zero_optimization", {{"stage", 3}}}};
  if (path.ends_with("compute_grad_norm"))
    return {{"gradient_clipping", 0}, {"zero_optimization", {{"stage", 1}}}};
  const json offloaded = {{"stage", 1}, {"offload_optimizer", {{"device", "cpu"}}}};
  if (path.ends_with("master_weights_and_grads")) return {{"zero_optimization", offloaded}};
  if (path.ends_with("bf16_optimizer_states"))
    return {{"zero_optimization", offloaded}, {"bf16", {{"bf16_master_weights_and_grads", true}}}};
  return json::object();
}

json with(json document, const Key& key) {
  std::string pointer = "/" + key.path;
  std::ranges::replace(pointer, '.', '/');
  document[json::json_pointer(pointer)] = json::parse(key.value);
  return document;
}

TEST(DeepSpeedJson, EveryKeyIsReadAndWritten) {
  const auto keys = every_key();
  EXPECT_GT(keys.size(), 130u);
  for (const auto& key : keys) {
    if (key.path.ends_with("legacy_stage1") || key.path == "amp.enabled") continue;  // only false
    SCOPED_TRACE(key.path + " = " + key.value);
    const auto read = parse_deepspeed_config(with(company_of(key.path), key).dump(), "ds.json").config;
    EXPECT_NE(deepspeed::value_at(read, key.path), deepspeed::value_at(DeepSpeedConfig{}, key.path));
    const auto text = to_json(read);
    EXPECT_EQ(rewritten(text), text);
    std::string pointer = "/" + key.path;
    std::ranges::replace(pointer, '.', '/');
    EXPECT_EQ(json::parse(text)[json::json_pointer(pointer)], json::parse(key.value));
  }
}

TEST(DeepSpeedJson, EveryOptimizerAndSchedulerIsReadAndWritten) {
  const auto expect_kept = [](const std::string& section, const std::string& type) {
    json params = json::object();
    if (section == "scheduler") params = {{"total_num_steps", 9}};
    if (type == "OneCycle") params = {{"cycle_min_lr", 0.5}, {"cycle_max_lr", {0.5, 0.25}}};
    if (type == "LRRangeTest" || type == "WarmupLR") params = json::object();
    const json document = {{section, {{"type", type}, {"params", params}}}};
    const auto text = rewritten(document.dump());
    EXPECT_EQ(rewritten(text), text);
    const auto written = json::parse(text)[section];
    EXPECT_EQ(written["type"], type);
    for (const auto& [key, value] : params.items()) EXPECT_EQ(written["params"][key], value) << key;
    EXPECT_GT(written["params"].size(), params.size()) << "defaults are written as well";
  };
  for (const auto& row : deepspeed::optimizer_choices()) {
    if (row.name != "none" && row.unavailable.empty()) expect_kept("optimizer", std::string(row.name));
  }
  for (const auto& row : deepspeed::scheduler_choices()) {
    if (row.name != "none") expect_kept("scheduler", std::string(row.name));
  }
}

TEST(DeepSpeedJson, KeepsAutoListsAndBetas) {
  const auto text = rewritten(R"({"train_batch_size": "auto", "bf16": {"enabled": "auto"},
      "optimizer": {"type": "adamw", "params": {"lr": "auto", "betas": [0.8, 0.9]}},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": [1e-3, 2e-3], "warmup_min_lr": 1e-6}}})");
  const auto written = json::parse(text);
  EXPECT_EQ(written["train_batch_size"], "auto");
  EXPECT_EQ(written["bf16"]["enabled"], "auto");
  EXPECT_EQ(written["optimizer"]["type"], "AdamW");
  EXPECT_EQ(written["optimizer"]["params"]["betas"], (json{0.8, 0.9}));
  EXPECT_EQ(written["scheduler"]["params"]["warmup_max_lr"], (json{1e-3, 2e-3}));
  EXPECT_EQ(written["scheduler"]["params"]["warmup_min_lr"], 1e-6);
  EXPECT_FALSE(written.contains("steps_per_print")) << "there is none";
}

TEST(DeepSpeedJson, TheSameDescriptionServesFlagsAndHelp) {
  DeepSpeedConfig config;
  OptionTree tree;
  tree.add("deepspeed", config);
  EXPECT_THAT(tree.keys(), ::testing::IsSupersetOf({"deepspeed.zero_optimization.offload_param.device",
                                                    "deepspeed.optimizer.lr", "deepspeed.fp16.enabled"}));
  const Assignment stage{.key = "deepspeed.zero_optimization.stage", .value = {.text = "3"}};
  tree.apply({&stage, 1});
  EXPECT_EQ(config.zero_optimization.stage, 3);
}

TEST(DeepSpeedJson, TorchsAdamHasTorchsDecay) {
  const auto decay = [](const std::string& params) {
    const auto c =
        parse_deepspeed_config(R"({"optimizer": {"type": "AdamW", "params": )" + params + "}}", "ds.json");
    return std::get<deepspeed::AdamW>(c.config.optimizer).weight_decay.value;
  };
  EXPECT_EQ(decay("{}"), 0.0);
  EXPECT_EQ(decay(R"({"torch_adam": true})"), 0.01);
  EXPECT_EQ(decay(R"({"torch_adam": true, "weight_decay": 0.5})"), 0.5);
}

}  // namespace
}  // namespace lockstep
