// Comm hooks: the built-in ones and one's own.
#include <functional>

#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/testing/wrapped_backends.h>

#include "../support/expect_error.h"
#include "ddp_support.h"

namespace lockstep {
namespace {

using testing::run_ranks;

at::Tensor train_with_hook(const Communicator& comm, const Ddp& options, int steps = 3) {
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
    const auto exact = train_with_hook(comm, {});
    for (const auto& [hook, tolerance] :
         {std::pair{DdpCommHook::kFp16Compress, 1e-3}, std::pair{DdpCommHook::kBf16Compress, 1e-2}}) {
      const auto compressed = train_with_hook(comm, {.ddp_comm_hook = hook});
      EXPECT_FALSE(compressed.equal(exact));
      EXPECT_TRUE(at::allclose(compressed, exact, tolerance, tolerance * 0.1));
      expect_same_bits(comm, compressed);
    }
  });
}

TEST(DdpHooks, AWrapperIsTheHookInAnotherDtype) {
  run_ranks(2, [](const Communicator& comm) {
    EXPECT_TRUE(train_with_hook(comm, {.ddp_comm_wrapper = DdpCommWrapper::kFp16Compress})
                    .equal(train_with_hook(comm, {.ddp_comm_hook = DdpCommHook::kFp16Compress})));
    EXPECT_TRUE(train_with_hook(comm, {.ddp_comm_wrapper = DdpCommWrapper::kBf16Compress})
                    .equal(train_with_hook(comm, {.comm_hook = bf16_compress_hook()})));
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

// A result may lie anywhere: in a part of a larger tensor, with gaps, in another dtype.
TEST(DdpHooks, AResultMayBeAView) {
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> places{
      [](const at::Tensor& values) {
        auto part = at::zeros({100}).narrow(0, 10, values.numel());
        return part.copy_(values);
      },
      [](const at::Tensor& values) {
        auto column = at::zeros({values.numel(), 2}).select(1, 0);
        return column.copy_(values);
      },
      [](const at::Tensor& values) {
        return values.to(at::kDouble).view({-1, 1});
      }};
  for (const auto& place : places) {
    for (const bool is_view : {false, true}) {
      run_ranks(2, [&](const Communicator& comm) {
        auto layer = make_layer(3, 2);
        DdpEngine engine(*layer, comm,
                         {.gradient_as_bucket_view = is_view,
                          .comm_hook = [&](const GradBucket& bucket, const Communicator& group) {
                            group.all_reduce(bucket.buffer(), ReduceOp::kAvg);
                            return [&place, buffer = bucket.buffer()] { return place(buffer); };
                          }});
        for (int step = 0; step < 2; ++step) {
          layer->zero_grad();
          engine.backward(layer->forward(at::full({1, 3}, comm.rank() + 1.0)).sum());
          EXPECT_TRUE(layer->weight.grad().equal(at::full({2, 3}, 1.5)));
        }
      });
    }
  }
}

TEST(DdpHooks, AHookWithoutAnEndIsRefused) {
  run_ranks(2, [](const Communicator& comm) {
    for (const auto wrapper : {DdpCommWrapper::kNone, DdpCommWrapper::kBf16Compress}) {
      auto layer = make_layer(3, 2);
      const CommHook hook = [](const GradBucket&, const Communicator&) { return FinishReduction(); };
      DdpEngine engine(*layer, comm, {.ddp_comm_wrapper = wrapper, .comm_hook = hook});
      test::expect_error<CommError>(
          [&] {
            engine.backward(layer->forward(at::ones({1, 3})).sum());
          },
          {"comm hook", "bucket 0", "none"});
    }
  });
}

// Gradients of weights that lie channels last: what a hook sees is what the parameter gets.
TEST(DdpHooks, GradientsAreSeenInTheirOwnLayout) {
  for (const auto wrapper : {DdpCommWrapper::kNone, DdpCommWrapper::kFp16Compress}) {
    run_ranks(2, [=](const Communicator& comm) {
      torch::nn::Conv2d layer(torch::nn::Conv2dOptions(3, 4, 3).bias(false));
      layer->weight.set_data(layer->weight.contiguous(at::MemoryFormat::ChannelsLast));
      at::Tensor seen;
      const CommHook hook = [&](const GradBucket& bucket, const Communicator& group) {
        group.all_reduce(bucket.buffer(), ReduceOp::kAvg);
        seen = bucket.gradients().at(0).to(at::kFloat).clone();
        return [buffer = bucket.buffer()] { return buffer; };
      };
      DdpEngine engine(*layer, comm, {.ddp_comm_wrapper = wrapper, .comm_hook = hook});
      engine.backward(layer->forward(at::arange(75, at::kFloat).view({1, 3, 5, 5}).sin()).sum());
      EXPECT_TRUE(at::allclose(seen, layer->weight.grad(), 1e-6, 1e-6));
    });
  }
}

TEST(DdpHooks, BucketsOfAStaticGraphAreCountedFromTheFirstPass) {
  run_ranks(2, [](const Communicator& comm) {
    auto narrow = make_layer(3, 2), wide = make_layer(3, 2);
    wide->to(at::kDouble);
    torch::nn::Sequential model(narrow, wide);
    DdpEngine engine(*model, comm, {.static_graph = true});
    for (int step = 0; step < 3; ++step) {
      const auto input = at::full({1, 3}, comm.rank() + 1.0);
      engine.backward(narrow->forward(input).sum() + wide->forward(input.to(at::kDouble)).sum());
      EXPECT_EQ(narrow->weight.grad()[0][0].item<float>(), 1.5f);
      EXPECT_EQ(wide->weight.grad()[0][0].item<double>(), 1.5);
      model->zero_grad();
    }
  });
}

}  // namespace
}  // namespace lockstep
