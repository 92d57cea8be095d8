// Join: ranks with different numbers of batches.
#include <lockstep/parallel/ddp/join.h>

#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/testing/wrapped_backends.h>

#include "../support/expect_error.h"
#include "ddp_support.h"

namespace lockstep {
namespace {

using test::expect_error;
using testing::run_ranks;

constexpr int kMaxBatches = 5;

// Rank r has r + 1 batches: of 2 rows each, every one used once.
int batches_of(int rank) { return std::min(rank + 1, kMaxBatches); }

at::Tensor batch_of(int rank, int step) {
  return at::arange(20, at::kFloat).view({2, 10}).add(100 * rank + 7 * step).mul(0.3).sin();
}

// Momentum SGD on plain tensors: state that a rank must keep up.
struct Momentum {
  void step(const torch::nn::Module& model) {
    const at::NoGradGuard no_grad;
    auto parameters = model.parameters();
    velocity.resize(parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      auto& gradient = parameters[i].mutable_grad();
      velocity[i] = velocity[i].defined() ? velocity[i] * 0.9 + gradient : gradient.clone();
      parameters[i].sub_(velocity[i], 0.1);
      gradient.reset();
    }
  }
  std::vector<at::Tensor> velocity;
};

// One process over the same samples: each step averages the losses of the ranks that still have a batch.
at::Tensor train_unevenly_alone(int ranks, bool divide_by_initial_world_size, int epochs) {
  auto model = make_plain_model();
  Momentum optimizer;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (int step = 0; step < batches_of(ranks - 1); ++step) {
      int active = 0;
      auto loss = at::zeros({});
      for (int rank = 0; rank < ranks; ++rank) {
        if (step >= batches_of(rank)) continue;
        ++active;
        loss = loss + loss_of(model, batch_of(rank, step));
      }
      (loss / (divide_by_initial_world_size ? ranks : active)).backward();
      optimizer.step(*model);
    }
  }
  return flat(model->parameters());
}

at::Tensor train_joined(const Communicator& comm, JoinOptions options, const Ddp& ddp, int epochs,
                        bool keeps_up) {
  auto model = make_plain_model();
  DdpEngine engine(*model, comm, ddp);
  Momentum optimizer;
  if (keeps_up) options.on_shadowed_step = [&] { optimizer.step(*model); };
  for (int epoch = 0; epoch < epochs; ++epoch) {
    Join join(engine, options);
    for (int step = 0; join.next(step < batches_of(comm.rank())); ++step) {
      engine.backward(loss_of(model, batch_of(comm.rank(), step)));
      optimizer.step(*model);
      engine.after_step();
    }
  }
  return flat(model->parameters());
}

class DdpJoin : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DdpJoin, ::testing::Values(1, 2, 3));

TEST_P(DdpJoin, EqualsOneProcessOverTheSameSamples) {
  for (const bool by_world : {true, false}) {
    const auto alone = train_unevenly_alone(GetParam(), by_world, 1);
    for (const Ddp& ddp : {Ddp{}, Ddp{.bucket_cap_mb = 0.0005}, Ddp{.find_unused_parameters = true},
                           Ddp{.static_graph = true}, Ddp{.gradient_as_bucket_view = true}}) {
      run_ranks(GetParam(), [&](const Communicator& comm) {
        const auto together = train_joined(comm, {.divide_by_initial_world_size = by_world}, ddp, 1, false);
        EXPECT_TRUE(at::allclose(together, alone, 1e-4, 1e-6)) << (together - alone).abs().max();
        expect_same_bits(comm, together);
      });
    }
  }
}

TEST_P(DdpJoin, OptimizersThatKeepUpStayEqualOverEpochs) {
  for (const Ddp& ddp : {Ddp{}, Ddp{.find_unused_parameters = true}}) {
    const auto alone = train_unevenly_alone(GetParam(), true, 3);
    run_ranks(GetParam(), [&](const Communicator& comm) {
      const auto together = train_joined(comm, {}, ddp, 3, true);
      EXPECT_TRUE(at::allclose(together, alone, 1e-4, 1e-6)) << (together - alone).abs().max();
      expect_same_bits(comm, together);
    });
  }
}

TEST(DdpJoin, ARankMayHaveNothingAtAll) {
  run_ranks(3, [](const Communicator& comm) {
    auto model = make_model();
    DdpEngine engine(*model, comm, {.bucket_cap_mb = 0.0005});
    for (int epoch = 0; epoch < 2; ++epoch) {
      Join join(engine, {.divide_by_initial_world_size = false});
      for (int step = 0; join.next(comm.rank() == 1 && step < 3); ++step) {
        train_step(model, engine, batch_of(1, step));
      }
    }
    auto states = model->parameters();
    for (const auto& buffer : model->buffers()) states.push_back(buffer.to(at::kFloat));
    expect_same_bits(comm, flat(states));
    EXPECT_EQ(model->named_buffers()["2.num_batches_tracked"].item<std::int64_t>(), 6);
    EXPECT_TRUE(engine.logging_data().join_uneven_inputs);
  });
}

TEST(DdpJoin, WindowsAndSeveralPassesAreShadowed) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm);
    Join join(engine);
    const int batches = comm.rank() == 0 ? 2 : 6;
    for (int step = 0; join.next(step < batches); ++step) {
      const auto input = batch_of(comm.rank(), step);
      if (step % 2 == 0) {
        const auto local = engine.no_sync();
        engine.backward(loss_of(model, input));
        continue;
      }
      engine.backward(loss_of(model, input));
      engine.backward(loss_of(model, input));
      step_and_clear(*model);
      engine.after_step();
    }
    expect_same_bits(comm, flat(model->parameters()));
  });
}

// Rank 0 has one step, rank 1 two, of two averaged passes each, which add up.
TEST(DdpJoin, PassesOfAStepAddUpOnShadows) {
  for (const bool by_world : {true, false}) {
    for (const bool keeps_up : {true, false}) {
      run_ranks(2, [=](const Communicator& comm) {
        auto layer = make_layer(1, 1);
        DdpEngine engine(*layer, comm);
        const float expected = by_world ? 1 : 2;
        JoinOptions options{.divide_by_initial_world_size = by_world};
        if (keeps_up) {
          options.on_shadowed_step = [&] {
            EXPECT_EQ(layer->weight.grad().item<float>(), expected);
            layer->zero_grad();
          };
        }
        Join join(engine, options);
        for (int step = 0; join.next(step < comm.rank() + 1); ++step) {
          for (int pass = 0; pass < 2; ++pass) engine.backward(layer->forward(at::ones({1, 1})).sum());
          EXPECT_EQ(layer->weight.grad().item<float>(), step == 0 ? 2 : expected);
          layer->zero_grad();
          engine.after_step();
        }
        EXPECT_FALSE(layer->weight.grad().defined());
      });
    }
  }
}

TEST(DdpJoin, GradientsOfAnUnfinishedWindowAreLost) {
  run_ranks(2, [](const Communicator& comm) {
    auto layer = make_layer(1, 1);
    DdpEngine engine(*layer, comm);
    for (int epoch = 0; epoch < 2; ++epoch) {
      Join join(engine);
      for (int step = 0; join.next(step < comm.rank() + 1); ++step) {
        const auto loss = layer->forward(at::ones({1, 1})).sum();
        if (epoch == 0) {
          const auto local = engine.no_sync();
          engine.backward(loss);
          continue;
        }
        engine.backward(loss);
        EXPECT_EQ(layer->weight.grad().item<float>(), step == 0 ? 1 : 0.5f);
        layer->zero_grad();
        engine.after_step();
      }
    }
  });
}

// Shadows keep gradients in the layout of their parameters, and none where no rank has any.
TEST(DdpJoin, ShadowsHaveTheGradientsOfTheOthers) {
  for (const Ddp& options : {Ddp{.find_unused_parameters = true}, Ddp{.static_graph = true}}) {
    run_ranks(2, [&](const Communicator& comm) {
      torch::nn::Conv2d used(torch::nn::Conv2dOptions(3, 4, 3).bias(false));
      used->weight.set_data(used->weight.contiguous(at::MemoryFormat::ChannelsLast));
      auto unused = make_layer(1, 1);
      torch::nn::Sequential model(used, unused);
      DdpEngine engine(*model, comm, options);
      const auto input = at::arange(75, at::kFloat).view({1, 3, 5, 5}).sin();
      const auto check = [&] {
        at::Tensor expected = used->weight.grad().clone();
        comm.broadcast(expected, 1);
        EXPECT_TRUE(used->weight.grad().equal(expected));
        EXPECT_FALSE(unused->weight.grad().defined());
        model->zero_grad();
      };
      Join join(engine, {.on_shadowed_step = check});
      for (int step = 0; join.next(step < (comm.rank() == 0 ? 1 : 3)); ++step) {
        engine.backward(used->forward(input).sum());
        engine.after_step();
        check();
      }
    });
  }
}

TEST(DdpJoin, ARankThatNeverLearntAStaticGraphIsNamedEverywhere) {
  run_ranks(2, [](const Communicator& comm) {
    auto layer = make_layer(1, 1);
    DdpEngine engine(*layer, comm, {.static_graph = true});
    expect_error<ConfigError>(
        [&] {
          Join join(engine);
          for (int step = 0; join.next(comm.rank() == 1 && step < 2); ++step) {
            engine.backward(layer->forward(at::ones({1, 1})).sum());
          }
        },
        {"static_graph under Join", "ran out of batches"});
  });
}

TEST(DdpJoin, SeveralEnginesShareALoop) {
  run_ranks(2, [](const Communicator& comm) {
    auto first = make_plain_model(1), second = make_model(2);
    DdpEngine first_engine(*first, comm), second_engine(*second, comm);
    Join join({&first_engine, &second_engine});
    for (int step = 0; join.next(step < batches_of(comm.rank())); ++step) {
      train_step(first, first_engine, batch_of(comm.rank(), step));
      train_step(second, second_engine, batch_of(comm.rank(), step));
    }
    expect_same_bits(comm, flat(first->parameters()));
    expect_same_bits(comm, flat(second->parameters()));
  });
}

TEST(DdpJoin, ThrowsOnEveryRankWhenAskedTo) {
  run_ranks(3, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm);
    int steps = 0;
    expect_error<DataError>(
        [&] {
          Join join(engine, {.throw_on_early_termination = true});
          for (; join.next(steps < batches_of(comm.rank())); ++steps) {
            train_step(model, engine, batch_of(comm.rank(), steps));
          }
        },
        {"ran out of batches", "rank 0", "throw_on_early_termination"});
    EXPECT_EQ(steps, 1);
    train_step(model, engine, batch_of(comm.rank(), 0));  // the Join is over
    expect_same_bits(comm, flat(model->parameters()));
  });
}

TEST(DdpJoin, CostsNothingWhenDisabledAndOneGatherPerEvent) {
  run_ranks(2, [](const Communicator& comm) {
    for (const bool enable : {false, true}) {
      auto model = make_plain_model();
      testing::CountingBackend counting(comm);
      DdpEngine engine(*model, counting.communicator());
      counting.clear();
      Join join(engine, {.enable = enable});
      for (int step = 0; join.next(step < 3); ++step) train_step(model, engine, batch_of(comm.rank(), step));
      EXPECT_EQ(counting.count("all_gather"), enable ? 3u * 2 + 1 : 0u);
    }
  });
}

TEST(DdpJoin, NamesRanksThatDoNotDoTheSame) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm);
    Join join(engine);
    ASSERT_TRUE(join.next(true));
    const auto loss = loss_of(model, batch_of(0, 0));
    expect_error<CollectiveMismatch>(
        [&] { comm.rank() == 0 ? engine.backward(loss) : engine.after_step(); },
        {"a backward of engine 0 as on rank 0", "after_step() of engine 0 on rank 1"});
  });
}

TEST(DdpJoin, RefusesWhatItCannotShadow) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm);
    const Join join(engine);
    expect_error<ConfigError>([&] { const Join second(engine); }, {"Join", "already"});
    DdpEngine skipping(*model, comm, {.find_unused_parameters = true, .skip_all_reduce_unused_params = true});
    expect_error<ConfigError>([&] { const Join second(skipping); },
                              {"Join", "skip_all_reduce_unused_params"});
  });
}

}  // namespace
}  // namespace lockstep
