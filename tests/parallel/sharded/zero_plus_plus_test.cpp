// ZeRO++: what travels, how far, and what the numbers are then.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

#include "parallel/sharded/quantized_record.h"
#include "parallel/sharded/shard_layout.h"

#include "../ddp_support.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using lockstep::testing::run_ranks;

constexpr int kRooms = 4;
constexpr std::int64_t kRoomWidth = 256;

// Blocks of matrices, large beside their vectors.
struct House : nn::Module {
  explicit House(std::int64_t width = kRoomWidth) {
    register_module("blocks", blocks);
    for (int i = 0; i < kRooms; ++i)
      blocks->push_back(
          nn::Sequential(nn::Linear(width, 4 * width), nn::GELU(), nn::Linear(4 * width, width)));
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& block : *blocks) x = x + block->as<nn::Sequential>()->forward(x);
    return x;
  }
  nn::ModuleList blocks;
};

std::shared_ptr<House> make_house(std::int64_t width = kRoomWidth) {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(4);
  return std::make_shared<House>(width);
}

at::Tensor house_input(std::int64_t seed, std::int64_t width = kRoomWidth) {
  return at::arange(4 * width, at::kFloat).add(static_cast<double>(seed)).mul(0.37).sin().view({4, width});
}

ShardingPlan plan_with(const ZeroPlusPlus& options, std::int64_t max_live = 0) {
  return {.shards = 4, .max_live_elements = max_live, .zero_plus_plus = options};
}

double bytes_of_house(const House& house) {
  double bytes = 0;
  for (const auto& parameter : house.parameters()) bytes += static_cast<double>(parameter.nbytes());
  return bytes;
}

void end_step(ShardedEngine& engine) {
  for (const auto& [name, piece] : engine.parameters()) piece.mutable_grad().reset();
  engine.after_step();
}

using Whole = std::map<std::string, at::Tensor>;

Whole whole_of(const nn::Module& module, ShardedEngine& engine) {
  ShardedEngine* const engines[] = {&engine};
  return full_state(module, engines);
}

// Steps of two micro-batches, each averaged, with clipping. On rank 0 the weights at the end.
Whole trained(const Communicator& comm, const ShardingPlan& plan, int steps = 4) {
  constexpr std::int64_t kWidth = 40;
  const auto house = make_house(kWidth);
  ShardedEngine engine(*house, plan, comm);
  const auto optimizer = OptimizerFactory(AdamW{.lr = 1e-2}).create(engine.parameters());
  engine.offload_state(*optimizer);
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    for (int micro = 0; micro < 2; ++micro) {
      const auto output = house->forward(house_input(100 * step + 10 * micro + comm.rank(), kWidth));
      engine.backward(output.to(at::kFloat).pow(2).mean());
    }
    engine.clip_grad_norm(optimizer->parameters(), 0.5);
    optimizer->step();
    engine.after_step();
  }
  return whole_of(*house, engine);
}

void expect_same_weights(const Whole& weights, const Whole& expected) {
  ASSERT_EQ(weights.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(weights.at(name).equal(tensor)) << name;
}

void expect_same_bits_with_secondary_shards(ShardingPlan plan) {
  run_ranks(4, [&](const Communicator& comm) {
    auto near = plan;
    near.zero_plus_plus.secondary_shards = 2;
    expect_same_weights(trained(comm, near), trained(comm, plan));
  });
}

TEST(SecondaryShards, GiveTheBitsOfAGatherAmongAll) {
  const test::TemporaryFolder folder;
  expect_same_bits_with_secondary_shards(plan_with({}));
  auto mixed = plan_with({});
  mixed.mixed_precision = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kBFloat16};
  mixed.master_dtype = at::kFloat;
  expect_same_bits_with_secondary_shards(mixed);
  auto on_disk = plan_with({});
  on_disk.offload = DiskOffload{.directory = folder.path()};
  expect_same_bits_with_secondary_shards(on_disk);
  auto checkpointed = plan_with({});
  checkpointed.activation_checkpointing = true;
  expect_same_bits_with_secondary_shards(checkpointed);
  auto at_once = plan_with({});
  at_once.release_after_every_operator = true;
  expect_same_bits_with_secondary_shards(at_once);
  expect_same_bits_with_secondary_shards(plan_with({.quantized_weights = true}));
}

struct GatherBytes {
  double far, near, near_gathered;
};

GatherBytes gather_bytes(const ShardedEngine& engine) {
  const auto stats = engine.stats();
  return {static_cast<double>(stats.gather_bytes_sent),
          static_cast<double>(stats.secondary_gather_bytes_sent),
          static_cast<double>(stats.secondary_gathered_bytes)};
}

template <class Work>
GatherBytes gather_bytes_of(const ShardedEngine& engine, const Work& work) {
  const auto before = gather_bytes(engine);
  work();
  const auto after = gather_bytes(engine);
  return {after.far - before.far, after.near - before.near, after.near_gathered - before.near_gathered};
}

// Ranks 0 and 1 are a node, and so are 2 and 3.
TEST(SecondaryShards, SendNothingBetweenNodesUntilTheStep) {
  run_ranks(4, [](const Communicator& comm) {
    const auto house = make_house();
    const auto model = bytes_of_house(*house);
    ShardedEngine engine(*house, plan_with({.secondary_shards = 2}), comm);
    EXPECT_NEAR(static_cast<double>(engine.stats().secondary_bytes), model / 2, 0.01 * model);
    for (int step = 0; step < 3; ++step) {
      at::Tensor loss;
      const auto forward = [&] { loss = house->forward(house_input(comm.rank())).pow(2).mean(); };
      const auto backward = [&] { engine.backward(loss); };
      const auto first = gather_bytes_of(engine, forward);
      EXPECT_NEAR(first.far, 0.75 * model, 0.01 * model);
      EXPECT_EQ(first.near, 0);
      for (int micro = 0; micro < 2; ++micro) {
        const auto back = gather_bytes_of(engine, backward);
        EXPECT_EQ(back.far, 0);
        EXPECT_GT(back.near, 0.2 * model);
        EXPECT_EQ(back.near_gathered, 2 * back.near);
        const auto again = gather_bytes_of(engine, forward);
        EXPECT_EQ(again.far, 0);
        EXPECT_NEAR(again.near, 0.5 * model, 0.01 * model);
      }
      engine.backward(loss);
      end_step(engine);
    }
  });
}

at::Tensor seen(House& house) {
  const torch::NoGradGuard no_grad;
  return house.blocks[1]->as<nn::Sequential>()->ptr<nn::LinearImpl>(0)->weight.clone();
}

at::Tensor& weight_in(House& house) {
  return house.blocks[1]->as<nn::Sequential>()->ptr<nn::LinearImpl>(0)->weight;
}

TEST(SecondaryShards, AreOutdatedByWritesAndLoads) {
  run_ranks(4, [](const Communicator& comm) {
    const auto house = make_house();
    ShardedEngine engine(*house, plan_with({.secondary_shards = 2}), comm);
    const torch::NoGradGuard no_grad;
    const auto gathered = [&] {
      house->forward(house_input(0));  // releases what is not used last
      return seen(*house);
    };
    const auto before = gathered();
    weight_in(*house).add_(1);
    EXPECT_TRUE(gathered().equal(before + 1));
    for (const auto& [name, piece] : engine.parameters()) piece.data().sub_(1);
    engine.forget_gathered();
    EXPECT_TRUE(gathered().equal(before + 1 - 1));
  });
}

// What one forward sends beside what it sends without quantisation.
double share_of_gather(const Communicator& comm, ShardingPlan plan) {
  const torch::NoGradGuard no_grad;
  double bytes[2] = {};
  for (const bool is_quantized : {false, true}) {
    const auto house = make_house();
    plan.zero_plus_plus.quantized_weights = is_quantized;
    ShardedEngine engine(*house, plan, comm);
    bytes[is_quantized] = gather_bytes_of(engine, [&] { house->forward(house_input(0)); }).far;
  }
  return bytes[1] / bytes[0];
}

TEST(QuantizedWeights, SendAQuarterOfFloat32AndHalfOfBfloat16) {
  run_ranks(4, [](const Communicator& comm) {
    EXPECT_LE(share_of_gather(comm, plan_with({})), 0.27);
    auto mixed = plan_with({});
    mixed.mixed_precision.param_dtype = at::kBFloat16;
    mixed.master_dtype = at::kFloat;
    EXPECT_LE(share_of_gather(comm, mixed), 0.53);
  });
}

TEST(QuantizedWeights, AreTheSameOnAllRanksAndShardsStayExact) {
  run_ranks(4, [](const Communicator& comm) {
    const auto exact = make_house();
    const auto house = make_house();
    ShardedEngine engine(*house, plan_with({.quantized_weights = true}), comm);
    engine.gather_all();
    const auto items = exact->named_parameters();
    for (const auto& [name, weight] : house->named_parameters().pairs()) {
      const torch::NoGradGuard no_grad;
      const auto mine = weight.detach().reshape({-1}).clone();
      const auto& own = items[name];
      expect_same_bits(comm, mine);
      const auto error = (mine - own.reshape({-1})).abs().max().item<double>();
      EXPECT_LE(error, 0.501 * own.abs().max().item<double>() / 127) << name;
      if (own.dim() > 1) {
        EXPECT_GT(error, 0) << name;
      } else {
        EXPECT_EQ(error, 0) << name;
      }
    }
    engine.forget_gathered();
    const auto whole = whole_of(*house, engine);
    if (comm.rank() != 0) return;
    for (const auto& item : items) EXPECT_TRUE(whole.at(item.key()).equal(item.value())) << item.key();
  });
}

TEST(QuantizedWeights, WritesChangeWhatTheyWriteOnly) {
  run_ranks(4, [](const Communicator& comm) {
    const auto house = make_house(40);
    ShardedEngine engine(*house, plan_with({.quantized_weights = true}), comm);
    auto expected = make_house(40);
    {
      const torch::NoGradGuard no_grad;
      for (auto* model : {house.get(), expected.get()}) {
        for (const int row : {3, 70, 3}) weight_in(*model)[row].fill_(0.5 + row);
      }
    }
    const auto whole = whole_of(*house, engine);
    if (comm.rank() != 0) return;
    for (const auto& item : expected->named_parameters())
      EXPECT_TRUE(whole.at(item.key()).equal(item.value())) << item.key();
  });
}

TEST(QuantizedWeights, FrozenOnesMayBeTheOnlyOnes) {
  run_ranks(2, [](const Communicator& comm) {
    const auto house = make_house(40);
    weight_in(*house).set_requires_grad(false);
    const auto exact = weight_in(*house).detach().clone();
    const auto trained = house->blocks[0]->as<nn::Sequential>()->ptr<nn::LinearImpl>(0)->weight;
    const auto exact_trained = trained.detach().clone();
    ShardingPlan plan{.shards = 2, .zero_plus_plus = {.quantized_frozen_weights = true}};
    ShardedEngine engine(*house, plan, comm);
    engine.gather_all();
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(weight_in(*house).clone().equal(exact));
    EXPECT_TRUE(trained.clone().equal(exact_trained));
  });
}

TEST(QuantizedWeights, ParametersThatStayGatheredAreExactAndHaveNoSecondaryShards) {
  run_ranks(4, [](const Communicator& comm) {
    const auto house = make_house(40);
    const auto exact = weight_in(*house).detach().clone();
    auto plan = plan_with({.secondary_shards = 2, .quantized_weights = true});
    plan.persistent_elements = 1 << 20;
    ShardedEngine engine(*house, plan, comm);
    EXPECT_TRUE(seen(*house).equal(exact));
    EXPECT_EQ(engine.stats().secondary_bytes, 0);
  });
}

// Its gradients are what the loss multiplies it with.
struct Sheet : nn::Module {
  Sheet() {
    matrix = register_parameter("matrix", at::zeros({64, 333}));
    vector = register_parameter("vector", at::zeros({500}));
    unused = register_parameter("unused", at::zeros({7, 9}));
  }
  at::Tensor loss(const at::Tensor& of_matrix, const at::Tensor& of_vector) const {
    return (matrix * of_matrix).sum() + (vector * of_vector).sum();
  }
  at::Tensor matrix, vector, unused;
};

at::Tensor sheet_gradient(at::IntArrayRef sizes, int rank) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).mul(0.7 + 0.1 * rank).sin().view(sizes);
}

at::Tensor mean_gradient(at::IntArrayRef sizes, int ranks) {
  auto sum = at::zeros(sizes);
  for (int rank = 0; rank < ranks; ++rank) sum += sheet_gradient(sizes, rank);
  return sum / ranks;
}

void average(const Sheet& sheet, ShardedEngine& engine, const at::Tensor& of_matrix, int rank) {
  for (const auto& [name, piece] : engine.parameters()) piece.mutable_grad().reset();
  engine.backward(sheet.loss(of_matrix, sheet_gradient({500}, rank)));
}

// This rank's run of a parameter's averaged gradient, and where it begins.
TensorShard gradient_of(const ShardedEngine& engine, const std::string& name) {
  for (const auto& [known, piece] : engine.parameters()) {
    if (known == name) return engine.shard_of(name, piece.grad().clone());
  }
  throw std::logic_error(name);
}

double largest_error(const TensorShard& shard, const at::Tensor& expected) {
  if (shard.elements.numel() == 0) return 0;
  const auto own = expected.reshape({-1}).narrow(0, shard.begin, shard.elements.numel());
  return (shard.elements - own).abs().max().item<double>();
}

constexpr double kHalfACode = 0.5 / 7;  // of numbers up to 1, in 4 bits

TEST(QuantizedGradients, AreNearTheMeanAndVectorsAreExact) {
  for (const int neighbours : {1, 2, 4}) {
    run_ranks(4, [neighbours](const Communicator& comm) {
      const Sheet sheet;
      ShardedEngine engine(sheet, plan_with({.quantized_gradients = true, .gradient_neighbours = neighbours}),
                           comm);
      average(sheet, engine, sheet_gradient({64, 333}, comm.rank()), comm.rank());
      const auto matrix = gradient_of(engine, "matrix");
      const auto error = largest_error(matrix, mean_gradient({64, 333}, 4));
      EXPECT_LE(error, (neighbours == 2 ? 2.1 : 1.01) * kHalfACode);
      EXPECT_TRUE(error > 1e-4 || matrix.elements.numel() == 0);
      EXPECT_LE(largest_error(gradient_of(engine, "vector"), mean_gradient({500}, 4)), 1e-6);
      for (const auto& [name, piece] : engine.parameters())
        EXPECT_EQ(piece.grad().defined(), name != "unused") << name;
      average(sheet, engine, sheet_gradient({64, 333}, comm.rank()), comm.rank());
      EXPECT_TRUE(gradient_of(engine, "matrix").elements.equal(matrix.elements)) << "another time";
    });
  }
}

TEST(QuantizedGradients, WhatIsNotFiniteStaysVisible) {
  for (const int neighbours : {1, 2}) {
    for (const auto bad :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      run_ranks(4, [&](const Communicator& comm) {
        const Sheet sheet;
        const ZeroPlusPlus options{.quantized_gradients = true,
                                   .gradient_neighbours = neighbours,
                                   .error_feedback = ErrorFeedback{}};
        ShardedEngine engine(sheet, plan_with(options), comm);
        auto gradient = sheet_gradient({64, 333}, comm.rank());
        const auto good = gradient.clone();
        if (comm.rank() == 2) gradient[20][1] = bad;
        average(sheet, engine, gradient, comm.rank());
        auto bad_blocks = gradient_of(engine, "matrix").elements.isnan().sum();
        comm.all_reduce(bad_blocks);
        EXPECT_EQ(bad_blocks.item<std::int64_t>(), 256) << "a block, and no more";
        average(sheet, engine, good, comm.rank());
        EXPECT_TRUE(gradient_of(engine, "matrix").elements.isfinite().all().item<bool>());
      });
    }
  }
}

// Two matrices, with room between them or not.
struct Pair : nn::Module {
  Pair(at::IntArrayRef of_a, at::IntArrayRef of_b) {
    a = register_parameter("a", at::zeros(of_a));
    b = register_parameter("b", at::zeros(of_b));
  }
  at::Tensor loss(double gradient) const { return gradient * (a.sum() + b.sum()); }
  at::Tensor a, b;
};

struct TwoPairs : nn::Module {
  TwoPairs() {
    register_module("loose", loose);
    register_module("dense", dense);
  }
  std::shared_ptr<Pair> loose = std::make_shared<Pair>(at::IntArrayRef{3, 11}, at::IntArrayRef{1, 900});
  std::shared_ptr<Pair> dense = std::make_shared<Pair>(at::IntArrayRef{2, 512}, at::IntArrayRef{2, 512});
};

// Rows of units are of one size, and share memory one after the other.
TEST(QuantizedGradients, WhatLiesBetweenThemDoesNotCount) {
  run_ranks(2, [](const Communicator& comm) {
    const TwoPairs model;
    const ShardingPlan plan{
        .shards = 2, .units = types<Pair>(), .zero_plus_plus = {.quantized_gradients = true}};
    ShardedEngine engine(model, plan, comm);
    engine.backward(model.dense->loss(1e6) + model.loose->loss(1));
    for (const auto& [name, piece] : engine.parameters()) {
      const double gradient = name.starts_with("dense") ? 1e6 : 1;
      EXPECT_TRUE(piece.grad().allclose(at::full_like(piece, gradient))) << name;
    }
  });
}

double error_of_one(const Communicator& comm, int neighbours) {
  const Sheet sheet;
  ShardedEngine engine(sheet, plan_with({.quantized_gradients = true, .gradient_neighbours = neighbours}),
                       comm);
  average(sheet, engine, sheet_gradient({64, 333}, comm.rank()), comm.rank());
  auto error = at::tensor(largest_error(gradient_of(engine, "matrix"), mean_gradient({64, 333}, 4)));
  comm.all_reduce(error, ReduceOp::kMax);
  return error.item<double>();
}

// Ranks 0 and 1 are a node, and so are 2 and 3.
TEST(QuantizedGradients, GoToTheOtherNodesOnceForAllNeighbours) {
  run_ranks(4, [](const Communicator& comm) {
    const Sheet sheet;
    ShardedEngine engine(sheet, plan_with({.quantized_gradients = true, .gradient_neighbours = 2}), comm);
    average(sheet, engine, sheet_gradient({64, 333}, comm.rank()), comm.rank());
    // A chunk for this rank's counterpart in the other node, and the flags of two parameters in its last
    // line.
    const auto chunk = detail::ShardLayout(std::vector<std::int64_t>{64 * 333, 7 * 9}, 4).shard_elements();
    const auto slot = detail::RecordFormat(chunk, detail::CodeBits::k4).bytes() + 4 * detail::kRowAlignment;
    EXPECT_EQ(engine.stats().far_reduction_bytes_sent, slot);
    EXPECT_NE(error_of_one(comm, 2), error_of_one(comm, 1)) << "sums of neighbours are rounded once more";
    EXPECT_EQ(error_of_one(comm, 4), error_of_one(comm, 1));
  });
}

// Throws after the gradients of a sheet have been sent.
void fail_late(const Sheet& sheet, ShardedEngine& engine, int rank) {
  auto last = at::ones({1}).requires_grad_() * 1;  // backward takes what was made first last
  last.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no"); });
  const auto loss = sheet.loss(3 * sheet_gradient({64, 333}, rank + 5), sheet_gradient({500}, rank));
  EXPECT_THROW(engine.backward(loss + last.sum()), std::runtime_error);
}

// Whether a gradient comes out as it does from an engine to which `happen` has not happened before.
template <class Happen>
void expect_errors_are_forgotten(const Happen& happen) {
  run_ranks(4, [&](const Communicator& comm) {
    const auto gradient = [&](bool has_happened) {
      const Sheet sheet;
      ShardedEngine engine(
          sheet,
          plan_with(
              {.quantized_gradients = true, .gradient_neighbours = 2, .error_feedback = ErrorFeedback{}}),
          comm);
      if (has_happened) happen(sheet, engine, comm.rank());
      average(sheet, engine, sheet_gradient({64, 333}, comm.rank()), comm.rank());
      return gradient_of(engine, "matrix").elements;
    };
    EXPECT_TRUE(gradient(true).equal(gradient(false)));
  });
}

TEST(QuantizedGradients, ErrorFeedbackForgetsGradientsOfAFailedBackward) {
  expect_errors_are_forgotten([](const Sheet& sheet, ShardedEngine& engine, int rank) {
    const auto sent = engine.stats().reductions;
    fail_late(sheet, engine, rank);
    EXPECT_EQ(engine.stats().reductions - sent, 2);
  });
}

TEST(QuantizedGradients, ErrorFeedbackForgetsWhatWasBeforeALoad) {
  expect_errors_are_forgotten([](const Sheet& sheet, ShardedEngine& engine, int rank) {
    ShardedEngine* const engines[] = {&engine};
    average(sheet, engine, 3 * sheet_gradient({64, 333}, rank + 5), rank);
    load_sharded_state(sheet, engines, sharded_state(sheet, engines), true);
  });
}

// The largest error of the mean of several averages of one gradient.
double error_of_mean(const Communicator& comm, const std::optional<ErrorFeedback>& feedback) {
  const Sheet sheet;
  ShardedEngine engine(
      sheet, plan_with({.quantized_gradients = true, .gradient_neighbours = 2, .error_feedback = feedback}),
      comm);
  constexpr int kTimes = 60;
  TensorShard sum;
  for (int time = 0; time < kTimes; ++time) {
    average(sheet, engine, sheet_gradient({64, 333}, comm.rank()), comm.rank());
    const auto one = gradient_of(engine, "matrix");
    if (time == 0) {
      sum = one;
    } else {
      sum.elements += one.elements;
    }
  }
  sum.elements /= kTimes;
  auto error = at::tensor(largest_error(sum, mean_gradient({64, 333}, 4)));
  comm.all_reduce(error, ReduceOp::kMax);
  return error.item<double>();
}

TEST(QuantizedGradients, ErrorFeedbackMakesUpForWhatWasLost) {
  run_ranks(4, [](const Communicator& comm) {
    const auto without = error_of_mean(comm, {});
    EXPECT_LT(error_of_mean(comm, ErrorFeedback{}), 0.4 * without);
    EXPECT_EQ(error_of_mean(comm, ErrorFeedback{.reset_every = 1}), without) << "forgotten each time";
    EXPECT_EQ(error_of_mean(comm, ErrorFeedback{.decay = 1.0}), without) << "of the past alone";
  });
}

// What one backward sends.
double bytes_of_backward(const Communicator& comm, const ZeroPlusPlus& options) {
  const auto house = make_house();
  ShardedEngine engine(*house, plan_with(options, ShardingPlan::kNoLimit), comm);
  double bytes = 0;
  for (int step = 0; step < 2; ++step) {
    const auto loss = house->forward(house_input(comm.rank())).pow(2).mean();
    const auto before = engine.stats().bytes_sent;
    engine.backward(loss);
    bytes = static_cast<double>(engine.stats().bytes_sent - before);
    end_step(engine);
  }
  return bytes;
}

TEST(QuantizedGradients, SendAnEighthOfFloat32) {
  run_ranks(4, [](const Communicator& comm) {
    const auto plain = bytes_of_backward(comm, {});
    for (const int neighbours : {1, 2})
      EXPECT_LE(
          bytes_of_backward(comm, {.quantized_gradients = true, .gradient_neighbours = neighbours}) / plain,
          0.15);
  });
}

const ZeroPlusPlus kAllOfIt{
    .secondary_shards = 2, .quantized_weights = true, .quantized_gradients = true, .gradient_neighbours = 2};

TEST(ZeroPlusPlus, AllOfItTrainsToNearlyTheSame) {
  run_ranks(4, [](const Communicator& comm) {
    const auto weights = trained(comm, plan_with({}), 20);
    const auto fewer = trained(comm, plan_with(kAllOfIt), 20);
    for (const auto& [name, weight] : weights) {
      const auto start = make_house(40)->named_parameters()[name];
      const auto way = (weight - start).norm().item<double>();
      EXPECT_LT((fewer.at(name) - weight).norm().item<double>(), 0.5 * way) << name;
    }
  });
}

TEST(ZeroPlusPlus, BitsDoNotDependOnWhereAndWhenThingsAreHeld) {
  const test::TemporaryFolder folder;
  run_ranks(4, [&](const Communicator& comm) {
    const auto expected = trained(comm, plan_with(kAllOfIt));
    auto plan = plan_with(kAllOfIt);
    plan.offload = DiskOffload{.directory = folder.path()};
    expect_same_weights(trained(comm, plan), expected);
    plan = plan_with(kAllOfIt);
    plan.activation_checkpointing = true;
    expect_same_weights(trained(comm, plan), expected);
    expect_same_weights(trained(comm, plan_with(kAllOfIt, ShardingPlan::kNoLimit)), expected);
  });
}

TEST(ZeroPlusPlus, GoesWithHalfPrecision) {
  run_ranks(4, [](const Communicator& comm) {
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      auto plan = plan_with({});
      plan.mixed_precision = {.param_dtype = dtype, .reduce_dtype = dtype};
      plan.master_dtype = at::kFloat;
      const auto weights = trained(comm, plan);
      plan.zero_plus_plus = kAllOfIt;
      for (const auto& [name, weight] : trained(comm, plan)) {
        const auto start = make_house(40)->named_parameters()[name];
        const auto way = (weights.at(name) - start).norm().item<double>();
        EXPECT_LT((weight - weights.at(name)).norm().item<double>(), way) << name << " in " << dtype;
      }
    }
  });
}

TEST(ZeroPlusPlus, NumbersThatDoNotFitAreNamed) {
  const auto check = [](const ShardingPlan& plan) { return [plan] { check_plan(plan, 4); }; };
  test::expect_error<ConfigError>(check(plan_with({.secondary_shards = 3})),
                                  {"secondary_shards", "divides 4 shards", "3"});
  test::expect_error<ConfigError>(check(plan_with({.gradient_neighbours = 0})),
                                  {"gradient_neighbours", "divides 4 shards", "0"});
  ShardingPlan copies{.shards = 2, .zero_plus_plus = {.quantized_gradients = true}};
  test::expect_error<ConfigError>(check(copies), {"quantized_gradients", "2 shards of 4 ranks"});
}

}  // namespace
}  // namespace lockstep
