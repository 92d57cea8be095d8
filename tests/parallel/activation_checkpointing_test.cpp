// Blocks that run again in backward, chosen by policy, in models that know nothing of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/autocast_mode.h>
#include <c10/core/Allocator.h>

#include <lockstep/base/error.h>
#include <lockstep/fabric/fabric.h>
#include <lockstep/parallel/activations.h>
#include <lockstep/parallel/ddp/ddp_engine.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/parallel/sync_batch_norm.h>
#include <lockstep/testing/fork_ranks.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "parallel/activations/module_policies.h"
#include "stack_model.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;

// Two steps, so that what the first leaves behind shows.
void expect_same_with(const Middle& middle, bool leaves_out = true) {
  const auto plain = make_stack(middle), model = make_stack(middle);
  apply_activation_checkpointing(*model, types<StackBlock>());
  const std::lock_guard lock(generator_mutex);
  for (int step = 0; step < 2; ++step) {
    for (auto* each : {plain.get(), model.get()}) each->block(0).seen.clear();
    seeded_loss(*plain, batch(step)).backward();
    const auto after_plain = at::rand({3});
    const auto loss = seeded_loss(*model, batch(step));
    EXPECT_EQ(model->block(0).seen.front().expired(), leaves_out);
    loss.backward();
    EXPECT_TRUE(at::rand({3}).equal(after_plain));
    expect_equal_gradients(*plain, *model);
    step_and_clear(*plain);
    step_and_clear(*model);
  }
}

TEST(ActivationCheckpointing, GivesTheSameBitsFromASecondRun) {
  expect_same_with([](const at::Tensor& x) { return at::gelu(x); });
}

TEST(ActivationCheckpointing, FindsRepeatedBlocksByItself) {
  const auto model = std::make_shared<nn::SequentialImpl>(nn::Linear(70, 70), nn::Linear(70, 70));
  apply_activation_checkpointing(*model);
  model->forward(at::ones({2, 70})).sum().backward();
  EXPECT_TRUE(model->parameters().front().grad().defined());
}

TEST(ActivationCheckpointing, FollowsRandomNumbers) {
  expect_same_with([](const at::Tensor& x) {
    auto noise = at::empty_like(x).bernoulli_(0.5);
    return at::rrelu(x + at::rand_like(x), 0.1, 0.3, true) * noise * at::rand({1});
  });
}

TEST(ActivationCheckpointing, FollowsAttentionWithDropout) {
  expect_same_with([](const at::Tensor& x) {
    const auto heads = x.view({1, -1, 4, 10}).transpose(1, 2);
    const auto mixed = at::scaled_dot_product_attention(heads, heads, heads, {}, 0.2, /*is_causal=*/true);
    return mixed.transpose(1, 2).reshape({-1, 40});
  });
}

TEST(ActivationCheckpointing, FollowsOperatorsInPlaceAndViews) {
  expect_same_with([](const at::Tensor& x) {
    auto y = x + 1;
    y.narrow(1, 0, 20).mul_(2).sigmoid_();
    const auto parts = y.chunk(2, 1);
    auto z = at::cat({parts[1], parts[0]}, 1);
    z.add_(at::arange(40).to(at::kFloat)).relu_();
    return z.index({at::indexing::Slice(), torch::tensor({39, 0, 5}).repeat({14}).slice(0, 0, 40)}).tanh();
  });
}

TEST(ActivationCheckpointing, FollowsWritesToWhatCameIn) {
  auto count = std::make_shared<at::Tensor>(at::zeros({40}));
  expect_same_with([count](const at::Tensor& x) {
    const at::NoGradGuard no_grad;
    count->add_(x.detach().mean(0));
    const at::AutoGradMode on(true);
    const auto y = (x + *count).tanh();
    count->zero_();
    return y;
  });
}

struct Doubled : torch::autograd::Function<Doubled> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const auto y = x.exp();
    context->save_for_backward({x, y});
    return y * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * context->get_saved_variables()[1] * 2};
  }
};

TEST(ActivationCheckpointing, FollowsFunctionsOfTheUsersOwn) {
  expect_same_with([](const at::Tensor& x) { return Doubled::apply(x.sigmoid()).sin().cos(); });
}

TEST(ActivationCheckpointing, LetsValuesBeReadAndWrittenByPointer) {
  expect_same_with([](const at::Tensor& x) {
    auto mask = at::zeros({40});
    for (int i = 0; i < 40; i += 2) mask.data_ptr<float>()[i] = 1;
    const auto scale = x.abs().max().item<float>();
    return (x / scale * mask * torch::tensor(std::vector<float>(40, 0.5F))).tanh();
  });
}

TEST(ActivationCheckpointing, FollowsExplicitCheckpointsInside) {
  expect_same_with([](const at::Tensor& x) {
    return checkpoint([](const at::Tensor& y) { return at::gelu(y).sin(); }, x.tanh()).cos();
  });
}

// Which ends the record: what comes after is an input of the next one.
TEST(ActivationCheckpointing, FollowsGradientsThatABlockTakes) {
  expect_same_with(
      [](const at::Tensor& x) {
        const auto y = x.tanh();
        return y + torch::autograd::grad({y.pow(3).sum()}, {x}, {}, true, true)[0];
      },
      /*leaves_out=*/false);
}

TEST(ActivationCheckpointing, FollowsAutocastAndForgetsItsCasts) {
  const auto run = [](const at::Tensor& x) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const auto weight = at::ones({40, 40}).requires_grad_();
    const auto y = at::matmul(at::matmul(x, weight), weight).to(at::kFloat).tanh();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return y;
  };
  expect_same_with(run);
}

struct NormedImpl : nn::Module {
  NormedImpl() {
    register_module("layer", layer);
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& x) { return at::relu(norm->forward(layer->forward(x))); }
  nn::Linear layer{10, 10};
  nn::BatchNorm1d norm{10};
};
TORCH_MODULE(Normed);

nn::Sequential make_normed() {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(2);
  return nn::Sequential(Normed(), Normed());
}

TEST(ActivationCheckpointing, CountsABatchOnce) {
  auto plain = make_normed(), model = make_normed();
  apply_activation_checkpointing(*model, types<Normed>());
  for (int step = 0; step < 3; ++step) {
    for (auto* each : {&plain, &model}) {
      loss_of(*each, batch(step)).backward();
      step_and_clear(**each);
    }
  }
  const auto expected = plain->buffers(), got = model->buffers();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(got[i].equal(expected[i])) << i;
  EXPECT_TRUE(flat(model->parameters()).equal(flat(plain->parameters())));
}

TEST(ActivationCheckpointing, SynchronisesBatchNormInBothRuns) {
  testing::run_ranks(2, [](const Communicator& comm) {
    auto plain = make_normed(), model = make_normed();
    SyncBatchNorm of_plain(*plain, comm), of_model(*model, comm);
    apply_activation_checkpointing(*model, types<Normed>());
    for (auto* each : {&plain, &model}) loss_of(*each, share(batch(0), comm)).backward();
    expect_equal_gradients(*plain, *model);
    EXPECT_TRUE(model->buffers().front().equal(plain->buffers().front()));
  });
}

TEST(ActivationCheckpointing, RunsAModuleThatIsUsedTwiceInTwoParts) {
  const auto plain = make_stack(), model = make_stack();
  apply_activation_checkpointing(*model, types<StackBlock>());
  const auto twice = [](Stack& stack) {
    torch::manual_seed(4);
    const auto once = stack.block(0).forward(stack.stem->forward(batch(0)));
    return stack.block(0).forward(once).pow(2).mean();
  };
  const std::lock_guard lock(generator_mutex);
  twice(*plain).backward();
  twice(*model).backward();
  expect_equal_gradients(*plain, *model);
}

TEST(ActivationCheckpointing, TakesGradientsTwice) {
  const auto plain = make_stack(), model = make_stack();
  apply_activation_checkpointing(*model, types<StackBlock>());
  const std::lock_guard lock(generator_mutex);
  for (auto* each : {plain.get(), model.get()}) {
    const auto loss = seeded_loss(*each, batch(0));
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  }
  expect_equal_gradients(*plain, *model);
}

TEST(ActivationCheckpointing, TakesSecondDerivatives) {
  const auto plain = make_stack(), model = make_stack();
  apply_activation_checkpointing(*model, types<StackBlock>());
  const std::lock_guard lock(generator_mutex);
  for (auto* each : {plain.get(), model.get()}) {
    const auto x = batch(0).requires_grad_();
    const auto slope = torch::autograd::grad({seeded_loss(*each, x)}, {x}, {}, true, true)[0];
    slope.pow(2).sum().backward();
  }
  expect_equal_gradients(*plain, *model);
}

TEST(ActivationCheckpointing, TakesFrozenBlocks) {
  const auto plain = make_stack(), model = make_stack();
  apply_activation_checkpointing(*model, types<StackBlock>());
  const std::lock_guard lock(generator_mutex);
  for (auto* each : {plain.get(), model.get()}) {
    for (auto& parameter : each->block(1).parameters()) parameter.set_requires_grad(false);
    seeded_loss(*each, batch(0)).backward();
  }
  expect_equal_gradients(*plain, *model);
}

TEST(ActivationCheckpointing, IsNothingWithoutGradients) {
  const auto model = make_stack();
  apply_activation_checkpointing(*model, types<StackBlock>());
  model->eval();
  const at::NoGradGuard no_grad;
  const auto x = at::ones({4, 10});
  const auto before = x.use_count();
  const auto y = model->block(0).forward(x);
  EXPECT_EQ(x.use_count(), before);
}

TEST(ActivationCheckpointing, LetsGoOfAGraphThatNobodyWants) {
  const auto model = make_stack();
  apply_activation_checkpointing(*model, types<StackBlock>());
  const auto x = at::ones({4, 10});
  { const auto dropped = model->block(0).forward(x); }
  (void)at::ones({1}).add(1);
  EXPECT_EQ(x.use_count(), 1);
}

TEST(ActivationCheckpointing, StartsCleanAfterAnExceptionInABlock) {
  bool fails = false;
  const Middle middle = [&fails](const at::Tensor& x) {
    if (fails) (void)x.view({-1, 7});
    return at::gelu(x);
  };
  const auto plain = make_stack(middle), model = make_stack(middle);
  apply_activation_checkpointing(*model, types<StackBlock>());
  const std::lock_guard lock(generator_mutex);
  seeded_loss(*plain, batch(0)).backward();
  fails = true;
  EXPECT_ANY_THROW(seeded_loss(*model, batch(0)));
  fails = false;
  seeded_loss(*model, batch(0)).backward();
  expect_equal_gradients(*plain, *model);
}

// The message of the exception that `run` throws.
template <class Run>
std::string refusal(const Run& run) {
  try {
    run();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no exception";
}

TEST(ActivationCheckpointing, NamesMemoryThatIsWrittenByPointer) {
  const auto model = make_stack([](const at::Tensor& x) {
    const auto mask = at::zeros_like(x);
    mask.data_ptr<float>()[0] = 1;
    return (x * mask).exp();
  });
  apply_activation_checkpointing(*model, types<StackBlock>());
  EXPECT_THAT(refusal([&] { model->forward(batch(0)).sum().backward(); }),
              AllOf(HasSubstr("computed something else in its second run"), HasSubstr("of other values"),
                    HasSubstr("ls::checkpoint")));
}

TEST(ActivationCheckpointing, NamesInputsThatChange) {
  const auto model = make_stack();
  apply_activation_checkpointing(*model, types<StackBlock>());
  auto x = batch(0);
  const auto y = model->block(1).forward(model->block(0).forward(x));
  x.zero_();
  EXPECT_THAT(refusal([&] { y.sum().backward(); }), HasSubstr("has changed before backward"));
}

TEST(ActivationCheckpointing, RefusesWhatItCannotDo) {
  const auto model = make_stack();
  EXPECT_THAT(refusal([&] { apply_activation_checkpointing(*model, "LSTM"); }),
              AllOf(HasSubstr("activation_checkpointing matches no module"), HasSubstr("StackBlock")));
  EXPECT_THAT(refusal([&] { apply_activation_checkpointing(*model, WrapPolicy::none()); }),
              AllOf(HasSubstr("matches no module"), HasSubstr("x = ls::checkpoint([this]")));
  EXPECT_THAT(refusal([&] { apply_activation_checkpointing(*model, WrapPolicy()); }),
              AllOf(HasSubstr("less than 4096 elements"), HasSubstr("StackBlock of at most"),
                    HasSubstr("name their type")));
  apply_activation_checkpointing(*model->blocks, types<StackBlock>());
  EXPECT_THAT(refusal([&] { apply_activation_checkpointing(*model, types<StackBlock>()); }),
              HasSubstr("which has it already"));
  apply_activation_checkpointing(*model->blocks, types<nn::Linear>());
  Stack unowned([](const at::Tensor& x) { return x; });
  EXPECT_THAT(refusal([&] { apply_activation_checkpointing(unowned, types<StackBlock>()); }),
              HasSubstr("owned by a std::shared_ptr"));
}

TEST(ActivationCheckpointing, IsReadAndPrinted) {
  using Option = OptionType<ActivationCheckpointing>;
  for (const std::string text : {"true", "false", "repeated_blocks", "min_num_params=500", "Block,Head"})
    EXPECT_EQ(Option::print(*Option::parse(text)), text);
  EXPECT_EQ(Option::print(ActivationCheckpointing(types<nn::Linear>())), "Linear");
  EXPECT_FALSE(Option::parse("min_num_params=x"));
  EXPECT_FALSE(ActivationCheckpointing("none").is_on());
}

// Bytes that this thread has and had allocated at most.
class CountedMemory final : public c10::MemoryReportingInfoBase {
 public:
  std::int64_t now = 0, peak = 0;
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
    now += bytes;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
};

struct MemoryUse {
  std::int64_t after_forward, peak;
};

MemoryUse memory_of_step(nn::Sequential& model) {
  const auto memory = std::make_shared<CountedMemory>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
  const auto x = at::ones({256, 64});
  const auto loss = model->forward(x).sum();
  const auto after_forward = memory->now;
  loss.backward();
  return {after_forward, memory->peak};
}

struct DeepBlockImpl : nn::Module {
  DeepBlockImpl() { register_module("layers", layers); }
  at::Tensor forward(const at::Tensor& x) { return layers->forward(x); }
  nn::Sequential layers{nn::LayerNorm(nn::LayerNormOptions({64})), nn::Linear(64, 256), nn::GELU(),
                        nn::Linear(256, 64), nn::Tanh()};
};
TORCH_MODULE(DeepBlock);

nn::Sequential make_deep(int blocks) {
  nn::Sequential model;
  for (int i = 0; i < blocks; ++i) model->push_back(DeepBlock());
  return model;
}

// Of what a block computes its input is a tenth.
TEST(ActivationCheckpointing, KeepsNothingButWhatComesIn) {
  auto plain = make_deep(8), model = make_deep(8);
  apply_activation_checkpointing(*model, types<DeepBlock>());
  for (auto* each : {&plain, &model}) memory_of_step(*each);  // gradients have their memory then
  const auto all = memory_of_step(plain), left = memory_of_step(model);
  EXPECT_LT(left.after_forward, all.after_forward / 5);
  EXPECT_LT(left.peak, all.peak / 2);
}

template <class Engine>
void train_three_steps(Stack& model, Engine& engine, int rank) {
  for (int step = 0; step < 3; ++step) {
    torch::manual_seed(20 + static_cast<std::uint64_t>(rank));
    engine.backward(model.forward(batch(step)).pow(2).mean());
    engine.after_step();
  }
}

void expect_same_under_ddp(const Communicator& comm) {
  const auto plain = make_stack(), model = make_stack();
  DdpEngine expected(*plain, comm, {});
  apply_activation_checkpointing(*model, types<StackBlock>());
  DdpEngine engine(*model, comm, {});
  train_three_steps(*plain, expected, comm.rank());
  train_three_steps(*model, engine, comm.rank());
  EXPECT_TRUE(model->block(0).seen.front().expired());
  expect_equal_gradients(*plain, *model);
}

void expect_same_in_shards(const Communicator& comm, Fsdp options, bool by_hand) {
  const auto plain = make_stack(), model = make_stack();
  options.auto_wrap_policy = types<StackBlock>();
  ShardedEngine expected(*plain, comm, options);
  if (by_hand) apply_activation_checkpointing(*model, types<StackBlock>());
  options.activation_checkpointing = !by_hand;
  ShardedEngine engine(*model, comm, options);
  train_three_steps(*plain, expected, comm.rank());
  train_three_steps(*model, engine, comm.rank());
  EXPECT_TRUE(model->block(0).seen.front().expired());
  EXPECT_EQ(engine.stats().gathers, expected.stats().gathers);
  EXPECT_EQ(engine.stats().gathered_bytes, expected.stats().gathered_bytes);
  const auto mine = engine.parameters(), theirs = expected.parameters();
  for (std::size_t i = 0; i < mine.size(); ++i)
    EXPECT_TRUE(mine[i].tensor.grad().equal(theirs[i].tensor.grad())) << mine[i].name;
}

LOCKSTEP_RANK_BODY(checkpointed_stack)(Communicator comm, std::string)->std::string {
  expect_same_under_ddp(comm);
  for (const bool by_hand : {false, true}) {
    expect_same_in_shards(comm, {}, by_hand);
    expect_same_in_shards(comm, {.sharding_strategy = ShardingStrategy::kShardGradOp}, by_hand);
    expect_same_in_shards(comm, {.sharding_strategy = ShardingStrategy::kNoShard}, by_hand);
    expect_same_in_shards(comm, {.mixed_precision = at::kBFloat16}, by_hand);
  }
  return "same";
}

TEST(ActivationCheckpointing, GivesTheSameBitsUnderDdpAndFsdp) {
  for (const auto& rank : testing::fork_ranks(2, "checkpointed_stack", ""))
    EXPECT_EQ(rank.result, "same") << rank.error;
}

TEST(ActivationCheckpointing, RunsNothingAgainForWhatCameIn) {
  testing::run_ranks(2, [](const Communicator& comm) {
    const auto gathers = [&](const ActivationCheckpointing& checkpointing) {
      nn::Sequential model(nn::Embedding(80, 64), nn::Linear(64, 64), nn::Linear(64, 64));
      ShardedEngine engine(*model, comm,
                           {.auto_wrap_policy = types<nn::Embedding, nn::Linear>(),
                            .activation_checkpointing = checkpointing});
      engine.backward(model->forward(at::arange(12)).sum());
      return engine.stats().gathers;
    };
    EXPECT_EQ(gathers(true), gathers(false));
  });
}

TEST(ActivationCheckpointing, OutlivesShardingAndConversion) {
  testing::run_ranks(2, [](const Communicator& comm) {
    const auto model = make_stack();
    model->eval();
    apply_activation_checkpointing(*model, types<StackBlock>());
    auto engine = std::make_shared<ShardedEngine>(*model, comm);
    keep_sharded(model, engine);
    restore_sharded(*model);
    model->to(at::kDouble);
    detail::mark_policies_again(*model);
    model->forward(batch(0).to(at::kDouble)).sum().backward();
    EXPECT_TRUE(model->block(0).seen.front().expired());
  });
}

TEST(ActivationCheckpointing, OutlivesTheSetupOfAStrategy) {
  Fabric fabric({.precision = Fp64{}});
  fabric.launch();
  const auto model = make_stack();
  apply_activation_checkpointing(*model, types<StackBlock>());
  fabric.setup(model);
  fabric.backward(model->forward(batch(0).to(at::kDouble)).sum());
  EXPECT_TRUE(model->block(0).seen.front().expired());
}

TEST(ActivationCheckpointing, RefusesTwoPoliciesOfOneModel) {
  testing::run_ranks(2, [](const Communicator& comm) {
    const auto model = make_stack();
    apply_activation_checkpointing(*model, types<StackBlock>());
    EXPECT_THAT(refusal([&] { ShardedEngine(*model, comm, {.activation_checkpointing = "StackBlock"}); }),
                HasSubstr("not both"));
  });
}

}  // namespace
}  // namespace lockstep
