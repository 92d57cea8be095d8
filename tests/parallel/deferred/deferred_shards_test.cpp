// Deferred modules, sharded: the weights of others, and memory for no more than the shards.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>

#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/parallel/ddp/ddp_engine.h>
#include <lockstep/parallel/deferred_init.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/testing/fork_ranks.h>
#include <lockstep/torch.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;
using at::Tensor;
using lockstep::testing::fork_ranks;

struct DeferredLm : nn::Module {
  DeferredLm() {
    register_module("embedding", embedding);
    register_module("blocks", blocks);
    for (int i = 0; i < 3; ++i) {
      blocks->push_back(nn::TransformerEncoderLayer(
          nn::TransformerEncoderLayerOptions(32, 4).dim_feedforward(72).dropout(0)));
    }
    register_module("norm", norm);
    register_buffer("positions", positions);
    scale = register_parameter("scale", torch::randn({32}) * 0.02 + 1);
  }
  Tensor forward(const Tensor& tokens) {
    auto x = embedding->forward(tokens) + positions.slice(0, 0, tokens.size(0)).unsqueeze(1);
    for (const auto& block : *blocks) x = block->as<nn::TransformerEncoderLayer>()->forward(x);
    return torch::matmul(norm->forward(x) * scale, embedding->weight.t());
  }
  nn::Embedding embedding{50, 32};
  nn::ModuleList blocks;
  nn::BatchNorm1d unused{2000};
  nn::LayerNorm norm{nn::LayerNormOptions({32})};
  Tensor positions = torch::randn({40, 32}) * 0.1;
  Tensor scale;
};

struct HowToShard {
  Fsdp fsdp = {};
  at::ScalarType dtype = at::kFloat;
  bool has_own_seed = false;  // on ranks other than the first
  bool defers_on_all = true;
};

// By their names, on rank 0: what is there after some steps.
std::map<std::string, Tensor> trained(const Communicator& comm, const HowToShard& how, bool defers) {
  torch::manual_seed(how.has_own_seed ? 3 + comm.rank() : 3);
  std::shared_ptr<DeferredLm> model;
  {
    std::optional<DeferredInit> scope;
    if (defers && (how.defers_on_all || comm.rank() == 0)) scope.emplace();
    model = std::make_shared<DeferredLm>();
  }
  if (how.dtype != at::kFloat) model->to(how.dtype);
  ShardedEngine engine(*model, comm, how.fsdp, /*ranks_per_node=*/2);
  const auto optimizer = OptimizerFactory(AdamW{.lr = 1e-2}).create(engine.parameters());
  for (int step = 0; step < 3; ++step) {
    optimizer->zero_grad();
    torch::manual_seed(10 * step + comm.rank());
    engine.backward(model->forward(torch::randint(50, {12, 2})).to(at::kFloat).pow(2).mean());
    optimizer->step();
    engine.after_step();
  }
  ShardedEngine* const engines[] = {&engine};
  return full_state(*model, engines);
}

std::string trains_alike(const Communicator& comm, const HowToShard& how) {
  const auto expected = trained(comm, how, /*defers=*/false);
  const auto got = trained(comm, how, /*defers=*/true);
  if (comm.rank() > 0) return "same";
  if (got.size() != expected.size() || got.empty()) return "another number of tensors";
  for (const auto& [name, tensor] : expected) {
    if (!torch::equal(got.at(name), tensor)) return name + " differs";
  }
  return "same";
}

const std::map<std::string, HowToShard>& ways_to_shard() {
  static const std::map<std::string, HowToShard> ways = {
      {"full", {}},
      {"grad_op", {.fsdp = {.sharding_strategy = ShardingStrategy::kShardGradOp}}},
      {"no_shard", {.fsdp = {.sharding_strategy = ShardingStrategy::kNoShard}}},
      {"ignored", {.fsdp = {.ignored_modules = types<nn::Embedding>()}}},
      {"unsynced", {.fsdp = {.sync_module_states = false}}},
      {"mixed", {.fsdp = {.mixed_precision = at::kBFloat16}}},
      {"converted", {.dtype = at::kBFloat16}},
      {"other_seeds", {.has_own_seed = true}},
      {"on_rank_0", {.has_own_seed = true, .defers_on_all = false}},
  };
  return ways;
}

LOCKSTEP_RANK_BODY(deferred_trains_alike)(Communicator comm, std::string way)->std::string {
  return trains_alike(comm, ways_to_shard().at(way));
}

TEST(DeferredShards, TrainAsOthersDo) {
  for (const auto& [name, way] : ways_to_shard()) {
    SCOPED_TRACE(name);
    for (const auto& rank : fork_ranks(2, "deferred_trains_alike", name)) EXPECT_EQ(rank.result, "same");
  }
}

LOCKSTEP_RANK_BODY(deferred_under_ddp)(Communicator comm, std::string)->std::string {
  const auto build = [&](bool defers) {
    torch::manual_seed(3 + comm.rank());
    std::optional<DeferredInit> scope;
    if (defers) scope.emplace();
    return std::make_shared<DeferredLm>();
  };
  const auto deferred = build(true), whole = build(false);
  const DdpEngine engine(*deferred, comm), other(*whole, comm);
  for (const auto& item : deferred->named_parameters()) {
    if (!torch::equal(item.value(), whole->named_parameters()[item.key()])) return item.key();
    if (is_deferred(item.value())) return item.key() + " is deferred";
  }
  return "same";
}

TEST(DeferredShards, AreWholeUnderDdp) {
  for (const auto& rank : fork_ranks(2, "deferred_under_ddp")) EXPECT_EQ(rank.result, "same");
}

constexpr double kMiB = 1 << 20;

double status_mib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stod(line.substr(key.size() + 1)) / 1024;
  }
  return -1;
}

// Forgets the peak of before.
void begin_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

struct Matrices : nn::Module {
  explicit Matrices(int count) {
    for (int i = 0; i < count; ++i) register_module("layer" + std::to_string(i), nn::Linear(1024, 1024));
  }
};

std::shared_ptr<Matrices> make_matrices(int count, bool defers) {
  std::optional<DeferredInit> scope;
  if (defers) scope.emplace();
  return std::make_shared<Matrices>(count);
}

constexpr int kMatrices = 40;

// What building and sharding the model added to the memory of a rank, at most, in MiB: constructed, sharded.
LOCKSTEP_RANK_BODY(deferred_build_peak)(Communicator comm, std::string defers)->std::string {
  {
    const ShardedEngine first(*make_matrices(2, defers == "true"), comm, {});
  }  // what first uses load and keep
  begin_peak();
  const double before = status_mib("VmRSS");
  const auto model = make_matrices(kMatrices, defers == "true");
  const double constructed = status_mib("VmHWM") - before;
  const ShardedEngine engine(*model, comm, {});
  const double sharded = status_mib("VmHWM") - before;
  return std::to_string(constructed) + " " + std::to_string(sharded);
}

struct BuildPeak {
  double constructed = 0, sharded = 0;
};

std::vector<BuildPeak> build_peaks(const std::string& defers) {
  std::vector<BuildPeak> peaks;
  for (const auto& rank : fork_ranks(4, "deferred_build_peak", defers)) {
    std::istringstream text(rank.result);
    text >> peaks.emplace_back().constructed >> peaks.back().sharded;
  }
  return peaks;
}

TEST(DeferredShards, AreBuiltInTheMemoryOfShardsAndOneParameter) {
  const double largest = 1024 * 1024 * 4 / kMiB;
  const double shards = kMatrices * largest / 4;
  for (const auto& peak : build_peaks("true")) {
    EXPECT_LE(peak.constructed, 1.1 * largest + 4);  // 4: what is small, and the allocator's
    EXPECT_LE(peak.sharded, 1.1 * (shards + largest));
    EXPECT_GE(peak.sharded, shards);
  }
  for (const auto& peak : build_peaks("false")) EXPECT_GE(peak.sharded, kMatrices * largest);
}

}  // namespace
}  // namespace lockstep
