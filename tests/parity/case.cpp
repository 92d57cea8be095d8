#include "case.h"

#include <fstream>
#include <map>
#include <random>

namespace parity {
namespace {

using nlohmann::json;

std::vector<ls::ParameterGroup> groups_of(const json& o) {
  std::vector<ls::ParameterGroup> groups;
  for (const auto& group : o.value("groups", json::array())) {
    for (const auto& name : group.at("parameters")) {
      auto& own = groups.emplace_back(ls::ParameterGroup{.pattern = name.get<std::string>()});
      if (group.contains("lr")) own.lr = group.at("lr").get<double>();
      if (group.contains("weight_decay")) own.weight_decay = group.at("weight_decay").get<double>();
    }
  }
  return groups;
}

ls::OptimizerFactory optimizer_of(const json& o) {
  const double lr = o.at("lr"), weight_decay = o.at("weight_decay");
  if (o.at("name") == "sgd") {
    return ls::SGD{.lr = lr,
                   .momentum = o.at("momentum"),
                   .dampening = o.at("dampening"),
                   .weight_decay = weight_decay,
                   .nesterov = o.at("nesterov"),
                   .groups = groups_of(o)};
  }
  if (o.at("name") == "adamw") {
    return ls::AdamW{.lr = lr,
                     .betas = {o.at("betas").at(0), o.at("betas").at(1)},
                     .eps = o.at("eps"),
                     .weight_decay = weight_decay,
                     .groups = groups_of(o)};
  }
  Case::refuse("optimizer.name", o.at("name"), "sgd or adamw");
}

ls::OneCycleLR one_cycle_of(const json& s) {
  const ls::OneCycleLR torch{};  // its defaults are torch's
  return {.max_lr = s.at("max_lr"),
          .total_steps = s.at("total_steps"),
          .pct_start = s.value("pct_start", torch.pct_start),
          .anneal_strategy = s.value("anneal", torch.anneal_strategy),
          .cycle_momentum = s.value("cycle_momentum", torch.cycle_momentum),
          .base_momentum = s.value("base_momentum", torch.base_momentum),
          .max_momentum = s.value("max_momentum", torch.max_momentum),
          .div_factor = s.value("div_factor", torch.div_factor),
          .final_div_factor = s.value("final_div_factor", torch.final_div_factor),
          .three_phase = s.value("three_phase", torch.three_phase)};
}

ls::SchedulerOptions scheduler_of(const json& s) {
  const std::string type = s.at("type");
  if (type == "linear")
    return ls::LinearLR{.start_factor = s.at("start_factor"),
                        .end_factor = s.at("end_factor"),
                        .total_iters = s.at("total_iters")};
  if (type == "cosine") return ls::CosineAnnealingLR{.T_max = s.at("t_max"), .eta_min = s.at("eta_min")};
  if (type == "exponential") return ls::ExponentialLR{.gamma = s.at("gamma")};
  if (type == "step") return ls::StepLR{.step_size = s.at("step_size"), .gamma = s.at("gamma")};
  if (type == "warmup")
    return ls::WarmupLR{.min_lr = s.at("min_lr"),
                        .max_lr = s.at("max_lr"),
                        .num_steps = s.at("num_steps"),
                        .warmup_type = s.at("warmup_type")};
  if (type == "warmup_decay")
    return ls::WarmupDecayLR{.min_lr = s.at("min_lr"),
                             .max_lr = s.at("max_lr"),
                             .num_steps = s.at("num_steps"),
                             .total_num_steps = s.at("total_num_steps"),
                             .warmup_type = s.at("warmup_type")};
  if (type == "one_cycle") return one_cycle_of(s);
  if (type == "sequential") {
    ls::SequentialLR sequence;
    for (const auto& part : s.at("schedulers")) sequence.schedulers.push_back(scheduler_of(part));
    for (const auto& milestone : s.at("milestones")) sequence.milestones.push_back(milestone);
    return sequence;
  }
  Case::refuse("schedulers.type", s.at("type"),
               "linear, cosine, exponential, step, warmup, warmup_decay, one_cycle or sequential");
}

ls::WrapPolicy wrap_policy_of(const json& wrap) {
  if (wrap == "each_linear") return ls::types<torch::nn::Linear>();
  if (wrap == "each_block") return "Block";  // of transformer_lm
  if (wrap == "root") return ls::WrapPolicy::none();
  Case::refuse("strategy.wrap", wrap, "each_linear, each_block or root");
}

ls::ShardingStrategy sharding_of(const json& name) {
  for (const auto& row : ls::option_names(ls::ShardingStrategy{})) {
    if (row.name == name) return row.value;
  }
  Case::refuse("strategy.sharding_strategy", name, "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD or HYBRID_SHARD");
}

ls::Fsdp fsdp_of(const json& s) {
  ls::Fsdp options;
  options.sharding_strategy = sharding_of(s.at("sharding_strategy"));
  if (options.sharding_strategy == ls::ShardingStrategy::kHybridShard)
    options.device_mesh = {s.at("mesh").at("replicate").get<int>(), s.at("mesh").at("shard").get<int>()};
  options.auto_wrap_policy = wrap_policy_of(s.at("wrap"));
  if (s.value("activation_checkpointing", false)) options.activation_checkpointing = true;
  return options;
}

// The file, unchanged, as DeepSpeed was given it.
ls::DeepSpeed deepspeed_of(const json& s, const std::filesystem::path& folder) {
  const auto file =
      std::filesystem::temp_directory_path() /
      ("parity_" + folder.filename().string() + "_" + std::to_string(std::random_device()()) + ".json");
  std::ofstream(file) << s.at("config").dump(2);
  return {.config = file};
}

ls::StrategyOptions strategy_of(const json& s, const std::filesystem::path& folder) {
  if (s.at("name") == "single") return ls::SingleDevice{};
  if (s.at("name") == "ddp")
    return ls::Ddp{.find_unused_parameters = s.value("find_unused_parameters", false)};
  if (s.at("name") == "fsdp") return fsdp_of(s);
  if (s.at("name") == "deepspeed") return deepspeed_of(s, folder);
  Case::refuse("strategy.name", s.at("name"), "single, ddp, fsdp or deepspeed");
}

ls::PrecisionOptions precision_of(const json& name) {
  for (const auto& row : ls::precision_choices()) {
    if (row.name == name && row.unavailable.empty()) return row.value;
  }
  Case::refuse("precision", name, "a precision that is built");
}

}  // namespace

void Case::refuse(const std::string& field, const nlohmann::json& value, const std::string& expected) {
  throw ls::DataError("parity", {.what = "case.json: " + field, .expected = expected, .got = value.dump()});
}

Case Case::read(const std::filesystem::path& folder) {
  std::ifstream file(folder / "case.json");
  if (!file) throw ls::DataError("parity", {.what = (folder / "case.json").string() + " cannot be read"});
  Case found{.folder = folder, .json = json::parse(file)};
  const auto& c = found.json;
  if (c.at("semantics") != "lightning" && c.at("semantics") != "deepspeed")
    refuse("semantics", c.at("semantics"), "lightning or deepspeed");
  return found;
}

std::filesystem::path Case::data_file() const {
  return folder.parent_path() / json.at("data").at("file").get<std::string>();
}

ls::Optimizers Case::optimizers() const {
  ls::Optimizers found{.optimizer = optimizer_of(json.at("optimizer"))};
  const auto& schedulers = json.at("schedulers");
  if (schedulers.size() > 1)
    refuse("schedulers", schedulers.size(), "none or one; `sequential` holds several");
  if (!schedulers.empty() && !is_deepspeed()) {
    const auto& scheduler = schedulers.at(0);
    found.lr_scheduler = ls::LRScheduler{
        .scheduler = scheduler_of(scheduler),
        .interval = scheduler.at("interval") == "step" ? ls::Interval::kStep : ls::Interval::kEpoch};
  }
  return found;
}

// DeepSpeed has its schedule, its windows and its limit of gradients from its own configuration.
bool Case::is_deepspeed() const { return json.at("strategy").at("name") == "deepspeed"; }

void Case::set_steps(ls::TrainerOptions& options) const {
  options.accumulate_grad_batches = json.at("accumulate_grad_batches").get<int>();
  options.partial_window =
      json.at("semantics") == "deepspeed" ? ls::PartialWindow::kCarry : ls::PartialWindow::kLightning;
  const auto& clip = json.at("gradient_clip");
  if (clip.is_null()) return;
  if (clip.at("algorithm") != "norm" && clip.at("algorithm") != "value")
    refuse("gradient_clip.algorithm", clip.at("algorithm"), "norm or value");
  options.gradient_clip_val = clip.at("value").get<double>();
  options.gradient_clip_algorithm =
      clip.at("algorithm") == "norm" ? ls::ClipAlgorithm::kNorm : ls::ClipAlgorithm::kValue;
}

ls::TrainerOptions Case::trainer() const {
  ls::TrainerOptions options{
      .max_epochs = json.at("max_epochs").get<std::int64_t>(),
      .strategy = strategy_of(json.at("strategy"), folder),
      .precision = precision_of(json.at("precision")),
      .devices = json.at("world_size").get<int>(),
      .num_sanity_val_steps = 0,
      .sync_batchnorm = json.at("sync_batchnorm").get<bool>(),
  };
  if (!is_deepspeed()) set_steps(options);
  if (!json.at("max_steps").is_null()) options.max_steps = json.at("max_steps");
  options.run.init_weights = folder / "init.safetensors";
  options.run.seed_everything = json.at("sampler").value("seed", std::uint64_t{0});
  return options;
}

std::vector<std::size_t> Case::first_group_of_each() const {
  const auto& optimizer = json.at("optimizer");
  if (!optimizer.contains("groups")) return {0};
  std::vector<std::size_t> firsts;
  std::size_t next = 0;
  for (const auto& group : optimizer.at("groups")) {
    firsts.push_back(next);
    next += group.at("parameters").size();
  }
  return firsts;
}

void Case::check_logits(const at::Tensor& logits) const {
  const std::map<std::string, at::ScalarType> others{
      {"bf16-mixed", at::kBFloat16}, {"bf16-true", at::kBFloat16}, {"16-mixed", at::kHalf}};
  const auto other = others.find(json.at("precision").get<std::string>());
  const auto expected = other == others.end() ? at::kFloat : other->second;
  if (logits.scalar_type() == expected) return;
  throw ls::DataError("parity", {.what = "the logits are not in the type of the precision",
                                 .expected = at::toString(expected),
                                 .got = at::toString(logits.scalar_type())});
}

}  // namespace parity
