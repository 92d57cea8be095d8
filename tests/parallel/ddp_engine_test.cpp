// DdpEngine: gradients equal those of one process on the global batch, with the same bits everywhere.
#include <lockstep/parallel/ddp/ddp_engine.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/testing/run_ranks.h>

#include "ddp_support.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::run_ranks;
using ::testing::ThrowsMessage;

/// The gradients of each of 3 training steps, one after the other.
at::Tensor train_alone() {
  auto model = make_plain_model();
  std::vector<at::Tensor> all;
  for (int step = 0; step < 3; ++step) {
    loss_of(model, batch(step)).backward();
    all.push_back(flat(gradients(*model)));
    step_and_clear(*model);
  }
  return at::cat(all);
}

at::Tensor train(const Communicator& comm, const Ddp& options) {
  auto model = make_plain_model(1 + static_cast<std::uint64_t>(comm.rank()));  // rank 0's must win
  DdpEngine engine(*model, comm, options);
  std::vector<at::Tensor> all;
  for (int step = 0; step < 3; ++step) {
    const auto loss = loss_of(model, share(batch(step), comm));
    engine.backward(loss);
    all.push_back(flat(gradients(*model)));
    step_and_clear(*model);
    engine.after_step();
  }
  return at::cat(all);
}

class DdpWorlds : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DdpWorlds, ::testing::Values(1, 2, 3, 4));

TEST_P(DdpWorlds, GradientsEqualThoseOfOneProcess) {
  const auto alone = train_alone();
  run_ranks(GetParam(), [&](const Communicator& comm) {
    const auto together = train(comm, {});
    EXPECT_TRUE(at::allclose(together, alone, 1e-5, 1e-7)) << (together - alone).abs().max();
    expect_same_bits(comm, together);
  });
}

TEST_P(DdpWorlds, BitsDoNotDependOnBucketsOrMode) {
  run_ranks(GetParam(), [](const Communicator& comm) {
    const auto expected = train(comm, {});
    EXPECT_TRUE(train(comm, {.bucket_cap_mb = 0.001}).equal(expected));
    EXPECT_TRUE(train(comm, {.find_unused_parameters = true}).equal(expected));
    EXPECT_TRUE(train(comm, {.static_graph = true}).equal(expected));
    EXPECT_TRUE(train(comm, {.gradient_as_bucket_view = true}).equal(expected));
  });
}

TEST(DdpEngine, GradientIsTheTreeSumDividedByRanks) {
  run_ranks(3, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm);
    const auto input = share(batch(0), comm);
    loss_of(model, input).backward();  // not announced: stays local
    const auto local = flat(gradients(*model));
    const auto all = at::empty({3, local.numel()});
    comm.all_gather(all, local);
    model->zero_grad();

    const auto loss = loss_of(model, input);
    engine.backward(loss);
    EXPECT_TRUE(flat(gradients(*model)).equal(((all[0] + all[1]) + all[2]) / 3));
  });
}

TEST(DdpEngine, AccumulatesLocallyAndAveragesOnce) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm);
    loss_of(model, share(batch(0), comm)).backward();
    loss_of(model, share(batch(1), comm)).backward();
    const auto sent = comm.bytes_sent();
    loss_of(model, share(batch(2), comm)).backward();
    EXPECT_EQ(comm.bytes_sent(), sent) << "a backward that was not announced communicated";
    const auto local = flat(gradients(*model));
    model->zero_grad();

    loss_of(model, share(batch(0), comm)).backward();
    loss_of(model, share(batch(1), comm)).backward();
    const auto last = loss_of(model, share(batch(2), comm));
    engine.backward(last);
    comm.all_reduce(local, ReduceOp::kAvg);
    EXPECT_TRUE(flat(gradients(*model)).equal(local));
  });
}

TEST(DdpEngine, BuffersFollowRankZero) {
  run_ranks(2, [](const Communicator& comm) {
    for (const bool follows : {true, false}) {
      auto model = make_model();
      DdpEngine engine(*model, comm, {.broadcast_buffers = follows});
      model->forward(share(batch(0), comm));
      engine.after_step();
      const auto mean = model->named_buffers()["2.running_mean"];
      const auto of_zero = mean.clone();
      comm.broadcast(of_zero);
      EXPECT_EQ(mean.equal(of_zero), follows || comm.rank() == 0);
    }
  });
}

TEST(DdpEngine, NamesUnusedParameters) {
  run_ranks(2, [](const Communicator& comm) {
    torch::nn::Sequential model(torch::nn::Linear(2, 2), torch::nn::Linear(2, 1));
    DdpEngine engine(*model, comm, {.bucket_cap_mb = 0.00001});
    const auto loss = model->children()[0]->as<torch::nn::Linear>()->forward(at::ones({1, 2})).sum();
    EXPECT_THAT([&] { engine.backward(loss); },
                ThrowsMessage<CommError>(::testing::AllOf(HasSubstr("none for 1.weight, 1.bias"),
                                                          HasSubstr("find_unused_parameters = true"))));
  });
}

// Only what all ranks can do without is said to be unneeded.
TEST(DdpUnneededWalk, IsSaidWhereNoRankLeavesOutAny) {
  const auto said_of = [](bool leaves_out) {
    ::testing::internal::CaptureStderr();
    run_ranks(2, [=](const Communicator& comm) {
      torch::nn::Linear first(1, 1), second(1, 1);
      torch::nn::Sequential model(first, second);
      DdpEngine engine(*model, comm, {.find_unused_parameters = true});
      const bool is_whole = comm.rank() == 0 || !leaves_out;
      const auto output = first->forward(at::ones({1, 1}));
      engine.backward((is_whole ? second->forward(output) : output).sum());
    });
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said_of(true), "");
  EXPECT_THAT(said_of(false),
              HasSubstr("find_unused_parameters is set, but the loss of every rank used all"));
}

// Rank 0 uses all parameters, rank 1 leaves out the second layer, and nobody uses the third.
TEST(DdpEngine, FindsUnusedParameters) {
  run_ranks(2, [](const Communicator& comm) {
    const auto make = [] { return torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)); };
    auto first = make(), second = make(), third = make();
    torch::nn::Sequential model(first, second, third);
    DdpEngine engine(*model, comm, {.find_unused_parameters = true});
    {
      const at::NoGradGuard no_grad;
      first->weight.fill_(2);
      second->weight.fill_(3);
    }
    for (int step = 0; step < 2; ++step) {
      auto output = first->forward(at::ones({1, 1}));
      if (comm.rank() == 0) output = second->forward(output);
      engine.backward(output);
      EXPECT_FLOAT_EQ(first->weight.grad().item<float>(), 2);   // (3 + 1) / 2
      EXPECT_FLOAT_EQ(second->weight.grad().item<float>(), 1);  // (2 + 0) / 2
      EXPECT_FALSE(third->weight.grad().defined());
      model->zero_grad();
    }
  });
}

TEST(DdpEngine, NamesWhatDiffersBetweenRanks) {
  run_ranks(3, [](const Communicator& comm) {
    const int width = comm.rank() == 2 ? 7 : 6;
    torch::nn::Sequential model(torch::nn::Linear(4, 5), torch::nn::Linear(5, width));
    EXPECT_THAT([&] { DdpEngine engine(*model, comm); },
                ThrowsMessage<CollectiveMismatch>(::testing::AllOf(
                    HasSubstr("1.weight [6, 5]"), HasSubstr("1.weight [7, 5]"), HasSubstr("rank 2"))));
    torch::nn::Linear layer(2, 2);
    layer->bias.set_requires_grad(comm.rank() != 1);
    EXPECT_THAT([&] { DdpEngine::broadcast_module_states(*layer, comm); },
                ThrowsMessage<CollectiveMismatch>(::testing::AllOf(HasSubstr("bias"), HasSubstr("rank 1"))));
  });
}

TEST(DdpEngine, NamesStridesThatDifferBetweenRanks) {
  run_ranks(2, [](const Communicator& comm) {
    torch::nn::Conv2d layer(torch::nn::Conv2dOptions(3, 4, 3));
    if (comm.rank() == 1) {
      layer->weight.set_data(layer->weight.contiguous(at::MemoryFormat::ChannelsLast));
    }
    EXPECT_THAT([&] { DdpEngine engine(*layer, comm); },
                ThrowsMessage<CollectiveMismatch>(::testing::AllOf(
                    HasSubstr("weight"), HasSubstr("strides [27, 1, 9, 3]"), HasSubstr("rank 1"))));
  });
}

TEST(DdpEngine, InitSyncMayBeLeftOut) {
  run_ranks(2, [](const Communicator& comm) {
    for (const bool syncs : {true, false}) {
      auto model = make_plain_model(1 + static_cast<std::uint64_t>(comm.rank()));
      const auto sent = comm.bytes_sent();
      const DdpEngine engine(*model, comm, {.init_sync = syncs});
      EXPECT_EQ(flat(model->parameters()).equal(flat(make_plain_model(1)->parameters())),
                syncs || comm.rank() == 0);
      EXPECT_EQ(comm.bytes_sent() > sent, syncs);
    }
  });
}

TEST(DdpEngine, FrozenModulesNeedNoReducer) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_model(static_cast<std::uint64_t>(comm.rank()));
    for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
    DdpEngine engine(*model, comm);
    engine.backward(at::ones({}).requires_grad_());
    expect_same_bits(comm, flat(model->parameters()));
  });
}

TEST(DdpEngine, TiedParametersComeOnce) {
  run_ranks(2, [](const Communicator& comm) {
    torch::nn::Linear layer(3, 3);
    torch::nn::Sequential model(layer, torch::nn::Tanh(), layer);
    DdpEngine engine(*model, comm);
    const auto loss = model->forward(at::full({2, 3}, comm.rank() + 1.0)).sum();
    engine.backward(loss);
    expect_same_bits(comm, flat({layer->weight.grad(), layer->bias.grad()}));
  });
}

TEST(DdpEngine, RefusesABucketOfNothing) {
  run_ranks(2, [](const Communicator& comm) {
    torch::nn::Linear layer(1, 1);
    EXPECT_THROW(DdpEngine(*layer, comm, {.bucket_cap_mb = 0}), ConfigError);
  });
}

}  // namespace
}  // namespace lockstep
