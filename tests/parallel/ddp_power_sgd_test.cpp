// PowerSGD: what it sends, and what it keeps from step to step.
#include <limits>

#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/ddp/join.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/testing/wrapped_backends.h>

#include "../support/expect_error.h"
#include "ddp_support.h"

namespace lockstep {
namespace {

using testing::run_ranks;

Ddp powered(PowerSgd options = {}) {
  options.start_powerSGD_iter = 2;
  return {.ddp_comm_hook = DdpCommHook::kPowerSgd, .ddp_comm_state = options};
}

// The gradient of a linear layer for one row is of rank one: nothing is lost.
TEST(DdpPowerSgd, IsExactWhereRankSuffices) {
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
TEST(DdpPowerSgd, FeedsErrorsBack) {
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

// Also where ranks without batches take part, and averages are of the others.
TEST(DdpPowerSgd, FeedsErrorsBackWhereRanksHaveEnded) {
  for (const bool by_world : {true, false}) {
    run_ranks(3, [=](const Communicator& comm) {
      auto layer = make_layer(16, 16);
      DdpEngine engine(*layer, comm, powered({.min_compression_rate = 1}));
      const auto noise = at::arange(256, at::kFloat).mul(0.7).sin().view({16, 16});
      auto sum = at::zeros({16, 16});
      Join join(engine, {.divide_by_initial_world_size = by_world});
      for (int step = 0; join.next(comm.rank() == 0 && step < 60); ++step) {
        engine.backward((layer->weight * noise).sum());
        sum += layer->weight.grad();
        layer->zero_grad();
        engine.after_step();
      }
      if (comm.rank() != 0) return;
      const auto exact = by_world ? noise / 3 : noise;
      EXPECT_LT((sum / 60 - exact).norm().item<float>(), 0.2 * exact.norm().item<float>());
    });
  }
}

// With a warm start the approximation improves from step to step; the seed decides where it begins.
TEST(DdpPowerSgd, StartsWarm) {
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

TEST(DdpPowerSgd, EveryHookWorksUnderEveryWrapperAndInHalfPrecision) {
  run_ranks(2, [](const Communicator& comm) {
    for (const auto hook : {DdpCommHook::kAllreduce, DdpCommHook::kFp16Compress, DdpCommHook::kBf16Compress,
                            DdpCommHook::kPowerSgd}) {
      for (const auto wrapper :
           {DdpCommWrapper::kNone, DdpCommWrapper::kFp16Compress, DdpCommWrapper::kBf16Compress}) {
        for (const auto dtype : {at::kFloat, at::kBFloat16}) {
          for (const double epsilon : {0.0, 1e-8}) {
            auto layer = make_layer(40, 30);
            layer->to(dtype);
            auto options = powered({.orthogonalization_epsilon = epsilon});
            options.ddp_comm_hook = hook;
            options.ddp_comm_wrapper = wrapper;
            DdpEngine engine(*layer, comm, options);
            for (int step = 0; step < 4; ++step) {
              layer->zero_grad();
              engine.backward(layer->forward(at::full({1, 40}, comm.rank() + 1.0, dtype)).sum());
              EXPECT_TRUE(at::allclose(layer->weight.grad().to(at::kFloat), at::full({30, 40}, 1.5), 0.03));
            }
          }
        }
      }
    }
  });
}

// Two equal layers, of which one loses much and the other nothing; buckets are planned anew in between.
struct Unequal {
  explicit Unequal(const Communicator& comm) : engine(*model, comm, powered({.min_compression_rate = 1})) {}

  void backward(bool fails = false) {
    const auto noise = at::arange(256, at::kFloat).mul(0.7).sin().view({16, 16}) * 100;
    auto loss = (lossy->weight * noise).sum() + exact->forward(at::ones({1, 16})).sum();
    if (fails) loss.register_hook([](const at::Tensor&) { throw std::runtime_error("not today"); });
    engine.backward(loss);
  }
  float deviation() const { return (exact->weight.grad() - 1).abs().max().item<float>(); }

  torch::nn::Linear lossy = make_layer(16, 16), exact = make_layer(16, 16);
  torch::nn::Sequential model{lossy, exact};
  DdpEngine engine;
};

TEST(DdpPowerSgd, ErrorsStayWithTheirParameters) {
  run_ranks(2, [](const Communicator& comm) {
    Unequal net(comm);
    for (int step = 0; step < 12; ++step) {
      if (step == 6) {
        EXPECT_THROW(net.backward(/*fails=*/true), std::runtime_error);
      }
      net.model->zero_grad();
      net.backward();
      EXPECT_LT(net.deviation(), 1e-3f) << "step " << step;
    }
  });
}

TEST(DdpPowerSgd, AStepThatIsNotFiniteIsNotRemembered) {
  run_ranks(2, [](const Communicator& comm) {
    for (const double epsilon : {0.0, 1e-8}) {
      auto layer = make_layer(40, 30);
      DdpEngine engine(*layer, comm, powered({.orthogonalization_epsilon = epsilon}));
      for (int step = 0; step < 8; ++step) {
        layer->zero_grad();
        const bool overflows = step == 4 && comm.rank() == 1;
        const double scale = overflows ? std::numeric_limits<double>::infinity() : 1.0;
        engine.backward(layer->forward(at::ones({1, 40})).sum() * scale);
        EXPECT_EQ(at::allclose(layer->weight.grad(), at::ones({30, 40}), 1e-4), step != 4) << "step " << step;
      }
    }
  });
}

TEST(DdpPowerSgd, SendsNoEmptyParts) {
  run_ranks(2, [](const Communicator& comm) {
    const auto sent = [&](torch::nn::Linear layer) {
      testing::CountingBackend counting(comm);
      DdpEngine engine(*layer, counting.communicator(), powered());
      for (int step = 0; step < 3; ++step) {
        counting.clear();
        engine.backward(layer->forward(at::ones({1, layer->options.in_features()})).sum());
      }
      return counting.count("all_reduce");
    };
    EXPECT_EQ(sent(torch::nn::Linear(1, 5)), 1u) << "nothing to compress";
    EXPECT_EQ(sent(make_layer(40, 30)), 2u) << "nothing but P and Q";
    EXPECT_EQ(sent(torch::nn::Linear(40, 30)), 3u);
  });
}

TEST(DdpPowerSgd, CompressesWhatLiesChannelsLast) {
  run_ranks(2, [](const Communicator& comm) {
    testing::CountingBackend counting(comm);
    torch::nn::Conv2d layer(torch::nn::Conv2dOptions(8, 16, 3).bias(false));
    layer->weight.set_data(layer->weight.contiguous(at::MemoryFormat::ChannelsLast));
    DdpEngine engine(*layer, counting.communicator(), powered());
    const auto slope = at::arange(16, at::kFloat).view({16, 1, 1, 1}) * at::arange(72).view({1, 8, 3, 3});
    for (int step = 0; step < 4; ++step) {
      layer->zero_grad();
      counting.clear();
      engine.backward((layer->weight * slope * (comm.rank() + 1)).sum());
      EXPECT_TRUE(at::allclose(layer->weight.grad(), slope * 1.5, 1e-3, 1e-2)) << "step " << step;
    }
    EXPECT_EQ(counting.bytes("all_reduce"), (16 + 72) * sizeof(float));
  });
}

// Training that stops and goes on in a new engine does as one that did not stop.
TEST(DdpPowerSgd, GoesOnFromItsState) {
  for (const bool is_warm : {true, false}) {
    run_ranks(2, [=](const Communicator& comm) {
      auto model = make_plain_model(), copy = make_plain_model();
      const auto options = powered({.min_compression_rate = 0.5, .warm_start = is_warm});
      const auto train = [&](torch::nn::Sequential& net, DdpEngine& engine, int from, int to) {
        for (int step = from; step < to; ++step) train_step(net, engine, share(batch(step), comm));
      };
      DdpEngine engine(*model, comm, options);
      train(model, engine, 0, 5);
      const auto state = engine.state().clone();
      {
        const at::NoGradGuard no_grad;
        for (std::size_t i = 0; i < model->parameters().size(); ++i) {
          copy->parameters()[i].copy_(model->parameters()[i]);
        }
      }
      train(model, engine, 5, 9);
      DdpEngine resumed(*copy, comm, options);
      resumed.load_state(state);
      EXPECT_EQ(resumed.state(), state);
      train(copy, resumed, 5, 9);
      EXPECT_TRUE(flat(copy->parameters()).equal(flat(model->parameters())));
      DdpEngine plain(*copy, comm);
      EXPECT_TRUE(plain.state().empty());
      test::expect_error<CheckpointError>([&] { resumed.load_state({}); }, {"parameters"});
    });
  }
}

TEST(DdpPowerSgd, RefusesToSkipBuckets) {
  run_ranks(2, [](const Communicator& comm) {
    auto layer = make_layer(4, 4);
    auto options = powered();
    options.find_unused_parameters = options.skip_all_reduce_unused_params = true;
    test::expect_error<ConfigError>([&] { DdpEngine(*layer, comm, options); },
                                    {"skip_all_reduce_unused_params", "powerSGD"});
  });
}

}  // namespace
}  // namespace lockstep
