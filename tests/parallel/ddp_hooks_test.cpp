// Comm hooks: the built-in ones and one's own.
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/testing/counting_backend.h>
#include <lockstep/testing/run_ranks.h>

#include "../support/expect_error.h"
#include "ddp_support.h"

namespace lockstep {
namespace {

using testing::run_ranks;

at::Tensor train(const Communicator& comm, const Ddp& options, int steps = 3) {
  auto model = make_plain_model();
  DdpEngine engine(*model, comm, options);
  std::vector<at::Tensor> all;
  for (int step = 0; step < steps; ++step) {
    engine.backward(loss_of(model, share(batch(step), comm)));
    all.push_back(flat(gradients(*model)));
    step_and_clear(*model);
  }
  return at::cat(all);
}

TEST(DdpHooks, CompressionIsCloseAndEqualOnAllRanks) {
  run_ranks(3, [](const Communicator& comm) {
    const auto exact = train(comm, {});
    for (const auto& [hook, tolerance] :
         {std::pair{DdpCommHook::kFp16Compress, 1e-3}, std::pair{DdpCommHook::kBf16Compress, 1e-2}}) {
      const auto compressed = train(comm, {.ddp_comm_hook = hook});
      EXPECT_FALSE(compressed.equal(exact));
      EXPECT_TRUE(at::allclose(compressed, exact, tolerance, tolerance * 0.1));
      expect_same_bits(comm, compressed);
    }
  });
}

TEST(DdpHooks, AWrapperIsTheHookInAnotherDtype) {
  run_ranks(2, [](const Communicator& comm) {
    EXPECT_TRUE(train(comm, {.ddp_comm_wrapper = DdpCommWrapper::kFp16Compress})
                    .equal(train(comm, {.ddp_comm_hook = DdpCommHook::kFp16Compress})));
    EXPECT_TRUE(train(comm, {.ddp_comm_wrapper = DdpCommWrapper::kBf16Compress})
                    .equal(train(comm, {.comm_hook = bf16_compress_hook()})));
  });
}

TEST(DdpHooks, NoopKeepsGradientsLocal) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    testing::CountingBackend counting(comm);
    DdpEngine engine(*model, counting.communicator(), {.ddp_comm_hook = DdpCommHook::kNoop});
    loss_of(model, share(batch(0), comm)).backward();
    const auto local = flat(gradients(*model));
    model->zero_grad();
    counting.clear();
    engine.backward(loss_of(model, share(batch(0), comm)));
    EXPECT_TRUE(flat(gradients(*model)).equal(local));
    EXPECT_EQ(counting.count(), 0u);
  });
}

// A hook of one's own sees every parameter once, in its shape, and decides what gradients become.
TEST(DdpHooks, OnesOwnHookSeesItsBucket) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm, {.bucket_cap_mb = 0.0005});
    std::vector<std::size_t> indices;
    std::size_t parameters = 0, lasts = 0;
    engine.register_comm_hook([&](const GradBucket& bucket, const Communicator& group) -> FinishReduction {
      indices.push_back(bucket.index());
      lasts += bucket.is_last();
      EXPECT_EQ(bucket.divisor(), group.size());
      const auto views = bucket.gradients();
      const auto owners = bucket.parameters();
      EXPECT_EQ(views.size(), owners.size());
      for (std::size_t i = 0; i < views.size(); ++i) EXPECT_EQ(views[i].numel(), owners[i].numel());
      parameters += views.size();
      auto work = group.all_reduce_async(bucket.buffer());
      return [work, buffer = bucket.buffer()] {
        work.wait();
        return buffer * 10;  // another tensor than the buffer
      };
    });
    EXPECT_EQ(engine.logging_data().comm_hook, "custom");
    for (int step = 0; step < 2; ++step) {
      model->zero_grad();
      engine.backward(loss_of(model, share(batch(0), comm)));
    }
    EXPECT_EQ(indices.front(), 0u);
    EXPECT_GT(indices.size(), 2u);
    EXPECT_EQ(lasts, 2u);
    EXPECT_EQ(parameters, 8u);
    const auto tenfold = flat(gradients(*model));
    model->zero_grad();
    loss_of(model, share(batch(0), comm)).backward();
    auto sum = flat(gradients(*model));
    comm.all_reduce(sum);
    EXPECT_TRUE(tenfold.equal(sum * 10));
  });
}

TEST(DdpHooks, WhatAHookThrowsBackwardThrows) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    int calls = 0;
    DdpEngine engine(*model, comm, {.comm_hook = [&](const GradBucket& bucket, const Communicator& group) {
      if (++calls == 1) throw std::runtime_error("not today");
      return allreduce_hook()(bucket, group);
    }});
    test::expect_error<std::runtime_error>([&] { engine.backward(loss_of(model, share(batch(0), comm))); },
                                           {"not today"});
    model->zero_grad();
    engine.backward(loss_of(model, share(batch(0), comm)));
    expect_same_bits(comm, flat(gradients(*model)));
  });
}

TEST(DdpHooks, AWrongResultIsRefused) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm, {.comm_hook = [](const GradBucket&, const Communicator&) {
      return [] { return at::ones({3}); };
    }});
    test::expect_error<CommError>([&] { engine.backward(loss_of(model, share(batch(0), comm))); },
                                  {"comm hook", "bucket 0", "3 elements"});
  });
}

// The gradient of a linear layer for one row is of rank one: nothing is lost.
TEST(DdpHooks, PowerSgdIsExactWhereRankSuffices) {
  for (const double epsilon : {0.0, 1e-12}) {
    run_ranks(2, [=](const Communicator& comm) {
      torch::nn::Linear layer(torch::nn::LinearOptions(40, 30));
      testing::CountingBackend counting(comm);
      DdpEngine engine(*layer, counting.communicator(),
                       {.ddp_comm_hook = DdpCommHook::kPowerSgd,
                        .ddp_comm_state = {.start_powerSGD_iter = 2, .orthogonalization_epsilon = epsilon}});
      const auto row = at::arange(40, at::kFloat).sin().view({1, 40});
      for (int step = 0; step < 5; ++step) {
        counting.clear();
        engine.backward(layer->forward(row * (comm.rank() + step)).sum());
        const auto expected = (row * (0.5 + step)).expand({30, 40});
        EXPECT_TRUE(at::allclose(layer->weight.grad(), expected, 1e-4, 1e-5)) << step;
        EXPECT_TRUE(at::allclose(layer->bias.grad(), at::ones({30}), 1e-5, 1e-6));
        expect_same_bits(comm, flat({layer->weight.grad(), layer->bias.grad()}));
        const auto floats = counting.bytes("all_reduce") / sizeof(float);
        EXPECT_EQ(floats, step < 2 ? 40u * 30 + 30 : 40u + 30 + 30) << step;
        layer->zero_grad();
      }
    });
  }
}

// What one step loses the next ones make up for: sums of gradients stay close.
TEST(DdpHooks, PowerSgdFeedsErrorsBack) {
  run_ranks(2, [](const Communicator& comm) {
    const auto lost = [&](bool feeds_back) {
      torch::nn::Linear layer(torch::nn::LinearOptions(16, 16).bias(false));
      DdpEngine engine(*layer, comm,
                       {.ddp_comm_hook = DdpCommHook::kPowerSgd,
                        .ddp_comm_state = {.start_powerSGD_iter = 2, .use_error_feedback = feeds_back}});
      const auto rows = at::arange(16 * 16, at::kFloat).mul(0.7 + comm.rank()).sin().view({16, 16});
      auto sum = at::zeros({16, 16});
      for (int step = 0; step < 60; ++step) {
        engine.backward(layer->forward(rows).mul(rows.t()).sum());
        sum += layer->weight.grad();
        layer->zero_grad();
      }
      auto exact = rows.matmul(rows);
      comm.all_reduce(exact, ReduceOp::kAvg);
      return (sum / 60 - exact).norm().item<float>() / exact.norm().item<float>();
    };
    const auto with = lost(true), without = lost(false);
    EXPECT_LT(with, 0.5f * without);
  });
}

// With a warm start the approximation improves from step to step; the seed decides where it begins.
TEST(DdpHooks, PowerSgdStartsWarm) {
  run_ranks(2, [](const Communicator& comm) {
    const auto after = [&](const PowerSgd& options, int steps) {
      torch::nn::Linear layer(torch::nn::LinearOptions(16, 16).bias(false));
      DdpEngine engine(*layer, comm, {.ddp_comm_hook = DdpCommHook::kPowerSgd, .ddp_comm_state = options});
      const auto rows = at::arange(16 * 16, at::kFloat).mul(0.7 + comm.rank()).sin().view({16, 16});
      for (int step = 0; step < steps; ++step) {
        layer->zero_grad();
        engine.backward(layer->forward(rows).mul(rows.t()).sum());
      }
      auto exact = rows.matmul(rows);
      comm.all_reduce(exact, ReduceOp::kAvg);
      return std::pair((layer->weight.grad() - exact).norm().item<float>(), layer->weight.grad().clone());
    };
    const auto options = [](bool is_warm, std::int64_t seed) {
      return PowerSgd{
          .start_powerSGD_iter = 2, .use_error_feedback = false, .warm_start = is_warm, .random_seed = seed};
    };
    EXPECT_LT(after(options(true, 0), 12).first, after(options(true, 0), 3).first);
    EXPECT_FALSE(after(options(true, 0), 12).second.equal(after(options(false, 0), 12).second));
    EXPECT_TRUE(after(options(true, 7), 3).second.equal(after(options(true, 7), 3).second));
    EXPECT_FALSE(after(options(true, 7), 3).second.equal(after(options(true, 8), 3).second));
  });
}

}  // namespace
}  // namespace lockstep
