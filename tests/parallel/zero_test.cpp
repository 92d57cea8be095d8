// zero::Init, zero::GatheredParameters and CoalesceGradReduction, over the plans of DeepSpeed's stages, fsdp
// and none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/parallel/zero.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"

#include "zero_support.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using deepspeed::Dtype;
using lockstep::testing::run_ranks;

at::Tensor through_pointer(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.scalar_type()).clone();
}

void set_first(const at::Tensor& tensor, float value) {
  if (tensor.scalar_type() == at::kFloat) *tensor.data_ptr<float>() = value;
  if (tensor.scalar_type() == at::kBFloat16) *tensor.data_ptr<at::BFloat16>() = value;
}

TEST(GatheredParameters, AreWholeForPointersAndForOneRankAlone) {
  for_each_plan([](Sharded& sharded) {
    const auto expected = original();
    const auto x = batch(0).repeat({1, 8}).narrow(1, 0, 75).to(sharded.dtype);
    {
      zero::GatheredParameters whole(*sharded.model, sharded.comm);
      for (const auto& item : sharded.model->named_parameters())
        EXPECT_TRUE(through_pointer(item.value()).equal(expected.at(item.key()).to(sharded.dtype)))
            << item.key();
      const torch::NoGradGuard no_grad;
      if (sharded.is_rank(1)) {
        EXPECT_EQ(sharded.model->forward(x).size(1), 3);
      }
      whole.close();
    }
    const torch::NoGradGuard no_grad;
    sharded.model->forward(x);  // gathers again
    sharded.expect_masters(expected);
  });
}

TEST(GatheredParameters, KeepWhatTheirModifierRankHasWritten) {
  for_each_plan([](Sharded& sharded) {
    auto expected = original();
    auto& linear = sharded.model->blocks->at<ZeroBlock>(1).linear;
    const int writer = sharded.comm.size() - 1;
    {
      const std::vector<at::Tensor> some{sharded.model->head->weight, linear->weight, linear->bias};
      zero::GatheredParameters whole(some, sharded.comm, {.modifier_rank = writer});
      const torch::NoGradGuard no_grad;
      if (sharded.is_rank(writer)) {
        set_first(sharded.model->head->weight, 42);
        linear->bias.fill_(0.5);
      }
      whole.close();
    }
    expected.at("head.weight")[0][0] = 42;
    expected.at("blocks.1.linear.bias").fill_(0.5);
    sharded.expect_masters(expected);
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE((linear->bias * 2).eq(1).all().item<bool>());
  });
}

TEST(GatheredParameters, NameWhoWroteWithoutBeingTheModifierRank) {
  for_each_plan([](Sharded& sharded) {
    for (const auto modifier : {std::optional<int>(), std::optional(0)}) {
      zero::GatheredParameters whole(*sharded.model, sharded.comm, {.modifier_rank = modifier});
      if (sharded.is_rank(1)) set_first(sharded.model->head->bias, 42);
      test::expect_error<ConfigError>([&] { whole.close(); }, {"head.bias", "rank 1", "modifier_rank"});
    }
    sharded.expect_masters(original());
  });
}

TEST(GatheredParameters, LeaveShardsAsTheyWereAfterAnException) {
  for_each_plan([](Sharded& sharded) {
    try {
      zero::GatheredParameters whole(*sharded.model, sharded.comm, {.modifier_rank = 0});
      set_first(sharded.model->head->bias, 42);
      throw std::runtime_error("in between");
    } catch (const std::runtime_error&) {
    }
    sharded.expect_masters(original());
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE((sharded.model->head->bias * 1).equal(original().at("head.bias").to(sharded.dtype)));
  });
}

TEST(GatheredParameters, LieInsideOfEachOther) {
  for_each_plan([](Sharded& sharded) {
    auto expected = original();
    auto& head = sharded.model->head;
    {
      zero::GatheredParameters outer(*sharded.model, sharded.comm, {.modifier_rank = 1});
      if (sharded.is_rank(1)) set_first(head->weight, 7);
      {
        zero::GatheredParameters reading(*head, sharded.comm);
        reading.close();
      }
      {
        zero::GatheredParameters inner(*head, sharded.comm, {.modifier_rank = 1});
        if (sharded.is_rank(1)) set_first(head->bias, 8);
        inner.close();
      }
      EXPECT_EQ(through_pointer(head->bias)[0].item<float>(), 8);
      outer.close();
    }
    expected.at("head.weight")[0][0] = 7;
    expected.at("head.bias")[0] = 8;
    sharded.expect_masters(expected);
  });
}

TEST(GatheredParameters, DropWhatWasWrittenInsideAlone) {
  for_each_plan([](Sharded& sharded) {
    auto expected = original();
    auto& head = sharded.model->head;
    zero::GatheredParameters outer(*sharded.model, sharded.comm, {.modifier_rank = 0});
    if (sharded.is_rank(0)) set_first(head->bias, 8);
    const auto before = through_pointer(head->weight)[0][0].item<float>();
    {
      zero::GatheredParameters dropped(*head, sharded.comm, {.modifier_rank = 0});
      if (sharded.is_rank(0)) set_first(head->weight, 7), set_first(head->bias, 9);
    }
    EXPECT_EQ(through_pointer(head->weight)[0][0].item<float>(), before);
    outer.close();
    expected.at("head.bias")[0] = 8;
    sharded.expect_masters(expected);
  });
}

// Some steps of training. `between` runs after each forward, what `around` gives lives from before it until
// after backward.
template <class Between, class Around>
std::map<std::string, at::Tensor> trained(Sharded& sharded, const Between& between, const Around& around) {
  const auto optimizer = OptimizerFactory(AdamW{.lr = 1e-2}).create(sharded.engine->parameters());
  for (int step = 0; step < 3; ++step) {
    optimizer->zero_grad();
    const auto x = share(batch(step), sharded.comm).repeat({1, 8}).narrow(1, 0, 75).to(sharded.dtype);
    {
      [[maybe_unused]] const auto living = around();
      const auto loss = sharded.model->forward(x).pow(2).mean();
      between();
      sharded.engine->backward(loss);
    }
    optimizer->step();
    sharded.engine->after_step();
  }
  return sharded.masters();
}

TEST(GatheredParameters, LeaveTrainingAsItIs) {
  run_ranks(2, [](const Communicator& comm) {
    for (const auto& plan : all_plans(2, Dtype::kFp32)) {
      Sharded plain(plan, comm, Dtype::kFp32), looked_at(plan, comm, Dtype::kFp32);
      Sharded held(plan, comm, Dtype::kFp32);
      const auto nothing = [] { return 0; };
      const auto look = [&] {
        zero::GatheredParameters whole(*looked_at.model, comm);
        through_pointer(looked_at.model->head->weight);
        whole.close();
      };
      const auto hold = [&] { return std::make_unique<zero::GatheredParameters>(*held.model, comm); };
      const auto expected = trained(plain, nothing, nothing);
      const auto found = trained(looked_at, look, nothing), around = trained(held, nothing, hold);
      for (const auto& [name, tensor] : found) {
        EXPECT_TRUE(tensor.equal(expected.at(name))) << name;
        EXPECT_TRUE(around.at(name).equal(expected.at(name))) << name;
      }
    }
  });
}

TEST(GatheredParameters, AreMadeEqualWhereNothingIsSharded) {
  run_ranks(2, [](const Communicator& comm) {
    const auto model = make_zero_model();
    const auto expected = original();
    {
      zero::GatheredParameters whole(*model, comm, {.modifier_rank = 1});
      if (comm.rank() == 1) set_first(model->head->weight, 9);
      whole.close();
    }
    EXPECT_EQ(model->head->weight[0][0].item<float>(), 9);
    {
      zero::GatheredParameters whole(*model, comm);
      if (comm.rank() == 1) set_first(model->head->bias, 9);
      test::expect_error<ConfigError>([&] { whole.close(); }, {"head.bias", "rank 1"});
    }
    EXPECT_TRUE(model->head->bias.equal(expected.at("head.bias")));
  });
}

TEST(GatheredParameters, RefuseAnotherShapeOrTypeAndGoBack) {
  for_each_plan([](Sharded& sharded) {
    auto& bias = sharded.model->head->bias;
    for (const auto& other : {at::ones({5}), at::ones({3}, at::kDouble)}) {
      zero::GatheredParameters whole(*sharded.model, sharded.comm, {.modifier_rank = 0});
      if (sharded.is_rank(0)) bias.set_data(other);
      test::expect_error<ConfigError>([&] { whole.close(); }, {"head.bias was [3]", "on rank 0", "copy_()"});
    }
    sharded.expect_masters(original());
  });
  run_ranks(2, [](const Communicator& comm) {
    const auto model = make_zero_model();
    for (const bool closes : {true, false}) {
      zero::GatheredParameters whole(*model, comm, {.modifier_rank = 0});
      if (comm.rank() == 0) model->head->bias.set_data(at::ones({5}));
      if (!closes) continue;
      test::expect_error<ConfigError>([&] { whole.close(); }, {"head.bias was [3]", "[5]"});
    }
    EXPECT_TRUE(model->head->bias.equal(original().at("head.bias"))) << "rank " << comm.rank();
  });
}

// An inner scope has kept what it wrote on all ranks: what is dropped later leads back there.
TEST(GatheredParameters, GoBackToWhatAnInnerScopeHasKept) {
  run_ranks(2, [](const Communicator& comm) {
    const auto model = make_zero_model();
    const at::Tensor bias = model->head->bias;
    const torch::NoGradGuard no_grad;
    try {
      const zero::GatheredParameters outer(*model, comm, {.modifier_rank = 0});
      zero::GatheredParameters inner(*model, comm, {.modifier_rank = 0});
      if (comm.rank() == 0) at::Tensor(bias).fill_(1);
      inner.close();
      if (comm.rank() == 0) at::Tensor(bias).fill_(2);
      throw std::runtime_error("ends the outer one");
    } catch (const std::runtime_error&) {
    }
    EXPECT_TRUE(bias.eq(1).all().item<bool>()) << "rank " << comm.rank();
  });
}

TEST(GatheredParameters, SayWhatIsDroppedWithoutClose) {
  const auto model = make_zero_model();
  ::testing::internal::CaptureStderr();
  {
    const zero::GatheredParameters whole(*model, Communicator(), {.modifier_rank = 0});
    set_first(model->head->bias, 9);
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("head.bias is dropped"));
  EXPECT_TRUE(model->head->bias.equal(original().at("head.bias")));
}

TEST(GatheredParameters, NameRanksThatGatherOthers) {
  const auto body = [](const Communicator& comm) {
    const auto model = make_zero_model();
    const zero::GatheredParameters whole(*model, comm, {.modifier_rank = comm.rank()});
  };
  try {
    run_ranks(2, body);
    FAIL();
  } catch (const CollectiveMismatch& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("modifier_rank 0 on rank 0"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("modifier_rank 1 on rank 1"));
  }
  run_ranks(2, [](const Communicator& comm) {
    const auto model = make_zero_model();
    test::expect_error<ConfigError>(
        [&] { const zero::GatheredParameters whole(*model, comm, {.modifier_rank = 2}); },
        {"modifier_rank", "0 to 1", "2"});
  });
}

TEST(GatheredParameters, GiveDeferredOnesTheirValues) {
  const auto model = [] {
    const std::lock_guard lock(generator_mutex);
    torch::manual_seed(8);
    const zero::Init scope;
    return std::make_shared<ZeroModel>();
  }();
  auto& weight = model->blocks->at<ZeroBlock>(0).linear->weight;
  ASSERT_TRUE(is_deferred(weight));
  zero::GatheredParameters whole(*model, Communicator());
  EXPECT_TRUE(through_pointer(weight).equal(original().at("blocks.0.linear.weight")));
  whole.close();
}

TEST(ZeroInit, DoesNothingWhereItIsNotEnabled) {
  const zero::Init scope(zero::InitOptions{.enabled = false});
  EXPECT_FALSE(is_deferred(nn::Linear(75, 75)->weight));
}

TEST(ZeroInit, LetsAModelTakeItsValuesWhenItIsSharded) {
  run_ranks(2, [](const Communicator& comm) {
    const auto model = [] {
      const std::lock_guard lock(generator_mutex);
      torch::manual_seed(8);
      const zero::Init scope;
      return std::make_shared<ZeroModel>();
    }();
    EXPECT_TRUE(is_deferred(model->blocks->at<ZeroBlock>(0).linear->weight));
    ShardedEngine engine(*model, comm);
    ShardedEngine* const engines[] = {&engine};
    const auto expected = original();
    for (const auto& [name, tensor] : full_state(*model, engines))
      EXPECT_TRUE(tensor.equal(expected.at(name))) << name;
  });
}

struct ModelWithNothing : torch::nn::Module {
  ModelWithNothing() {
    register_module("linear", linear);
    nothing = register_parameter("nothing", at::empty({0, 3}));
  }
  at::Tensor forward(const at::Tensor& x) { return linear->forward(x).sum() + nothing.sum(); }
  torch::nn::Linear linear{10, 4};
  at::Tensor nothing;
};

TEST(ShardedParameters, MayHaveNoElements) {
  run_ranks(2, [](const Communicator& comm) {
    for (const OptimizerFactory& factory :
         {OptimizerFactory(AdamW{.lr = 0.1}), OptimizerFactory(Lamb{.lr = 0.1}),
          OptimizerFactory(Muon{.lr = 0.1})}) {
      for (const auto& plan : all_plans(2, Dtype::kFp32)) {
        const auto model = std::make_shared<ModelWithNothing>();
        const auto engine = std::make_shared<ShardedEngine>(*model, plan, comm);
        const auto optimizer = factory.create(engine->parameters(), engine->exchange());
        for (int step = 0; step < 2; ++step) {
          optimizer->zero_grad();
          engine->backward(model->forward(share(batch(step), comm)));
          EXPECT_TRUE(std::isfinite(engine->clip_grad_norm(optimizer->parameters(), 1.0)));
          optimizer->step();
          engine->after_step();
        }
        ShardedEngine* const engines[] = {engine.get()};
        const auto state = full_state(*model, engines);
        if (comm.rank() == 0) {
          EXPECT_EQ(state.at("nothing").sizes(), at::IntArrayRef({0, 3}));
        }
      }
    }
  });
}

// Of several backward passes: what a window has, in one reduction of each unit.
TEST(CoalesceGradReduction, AveragesOnceWhatHasAddedUp) {
  run_ranks(2, [](const Communicator& comm) {
    for (const auto type : {Dtype::kFp32, Dtype::kBf16}) {
      for (const auto& plan : all_plans(2, type)) {
        Sharded window(plan, comm, type), together(plan, comm, type);
        const auto backward = [&](Sharded& sharded, int pass) {
          const auto x = share(batch(pass), comm).repeat({1, 8}).narrow(1, 0, 75).to(sharded.dtype);
          sharded.engine->backward(sharded.model->forward(x).pow(2).mean());
        };
        {
          const auto local = window.engine->no_sync();
          for (int pass = 0; pass < 2; ++pass) backward(window, pass);
        }
        backward(window, 2);
        deepspeed::CoalesceGradReduction scope(*together.model);
        for (int pass = 0; pass < 3; ++pass) backward(together, pass);
        EXPECT_EQ(together.engine->stats().reductions, 0);
        scope.close();
        EXPECT_EQ(together.engine->stats().reductions, window.engine->stats().reductions);
        const auto expected = window.engine->parameters(), found = together.engine->parameters();
        for (std::size_t i = 0; i < expected.size(); ++i)
          EXPECT_TRUE(found[i].tensor.grad().equal(expected[i].tensor.grad())) << expected[i].name;
        backward(together, 3);  // as ever
        EXPECT_EQ(together.engine->stats().reductions, 2 * window.engine->stats().reductions);
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
