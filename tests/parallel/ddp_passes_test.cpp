// Several backward passes per step, accumulation, tied and repeated parameters, graphs within graphs.
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/testing/run_ranks.h>

#include "../support/expect_error.h"
#include "ddp_support.h"

namespace lockstep {
namespace {

using test::expect_error;
using testing::run_ranks;

void all_modes(int ranks, const std::function<void(const Communicator&, const Ddp&)>& body) {
  for (const Ddp& options : {Ddp{}, Ddp{.find_unused_parameters = true}, Ddp{.static_graph = true},
                             Ddp{.gradient_as_bucket_view = true}}) {
    run_ranks(ranks, [&](const Communicator& comm) { body(comm, options); });
  }
}

at::Tensor mean_over_ranks(const Communicator& comm, const at::Tensor& local) {
  auto mean = local.clone();
  comm.all_reduce(mean, ReduceOp::kAvg);
  return mean;
}

TEST(DdpPasses, TwoAveragedPassesAddUp) {
  all_modes(2, [](const Communicator& comm, const Ddp& options) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm, options);
    for (int step = 0; step < 3; ++step) {
      at::Tensor expected;
      for (int pass = 0; pass < 2; ++pass) {
        loss_of(model, share(batch(pass), comm)).backward();
        const auto mean = mean_over_ranks(comm, flat(gradients(*model)));
        expected = expected.defined() ? expected + mean : mean;
        model->zero_grad();
      }
      for (int pass = 0; pass < 2; ++pass) engine.backward(loss_of(model, share(batch(pass), comm)));
      EXPECT_TRUE(at::allclose(flat(gradients(*model)), expected, 1e-5, 1e-7));
      expect_same_bits(comm, flat(gradients(*model)));
      model->zero_grad();
    }
  });
}

TEST(DdpPasses, AKeptGraphRunsTwice) {
  all_modes(2, [](const Communicator& comm, const Ddp& options) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm, options);
    for (int step = 0; step < 2; ++step) {
      const auto loss = loss_of(model, share(batch(0), comm));
      engine.backward(loss, {.retain_graph = true});
      const auto once = flat(gradients(*model));
      engine.backward(loss);
      EXPECT_TRUE(at::allclose(flat(gradients(*model)), once * 2, 1e-5, 1e-7));
      model->zero_grad();
    }
  });
}

TEST(DdpPasses, AGradientMayBeGiven) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm);
    const auto output = model->forward(share(batch(0), comm));
    engine.backward(output, {.gradient = at::ones_like(output), .retain_graph = true});
    const auto given = flat(gradients(*model));
    model->zero_grad();
    engine.backward(output.sum());
    EXPECT_TRUE(at::allclose(flat(gradients(*model)), given, 1e-5, 1e-7));
  });
}

TEST(DdpPasses, WindowsAccumulateInEveryMode) {
  all_modes(3, [](const Communicator& comm, const Ddp& options) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm, options);
    for (int window = 0; window < 3; ++window) {
      for (int pass = 0; pass < 2; ++pass) loss_of(model, share(batch(window + pass), comm)).backward();
      const auto expected = mean_over_ranks(comm, flat(gradients(*model)));
      model->zero_grad();
      loss_of(model, share(batch(window), comm)).backward();
      engine.backward(loss_of(model, share(batch(window + 1), comm)));
      EXPECT_TRUE(flat(gradients(*model)).equal(expected)) << "window " << window;
      model->zero_grad();
    }
  });
}

// The second pass leaves out the layer that the first one used.
TEST(DdpPasses, FindsWhatAnEarlierPassOfTheWindowUsed) {
  run_ranks(2, [](const Communicator& comm) {
    torch::nn::Linear left(torch::nn::LinearOptions(1, 1).bias(false));
    torch::nn::Linear right(torch::nn::LinearOptions(1, 1).bias(false));
    torch::nn::Sequential model(left, right);
    DdpEngine engine(*model, comm, {.find_unused_parameters = true});
    for (int window = 0; window < 2; ++window) {
      left->forward(at::full({1, 1}, comm.rank() + 1.0)).sum().backward();
      engine.backward(right->forward(at::ones({1, 1})).sum());
      EXPECT_EQ(left->weight.grad().item<float>(), 1.5f);
      EXPECT_EQ(right->weight.grad().item<float>(), 1);
      model->zero_grad();
    }
  });
}

TEST(DdpPasses, AParameterMayBeUsedTwice) {
  all_modes(2, [](const Communicator& comm, const Ddp& options) {
    torch::nn::Linear layer(torch::nn::LinearOptions(1, 1).bias(false));
    DdpEngine engine(*layer, comm, options);
    {
      const at::NoGradGuard no_grad;
      layer->weight.fill_(3);
    }
    for (int step = 0; step < 2; ++step) {
      engine.backward(layer->forward(layer->forward(at::full({1, 1}, comm.rank() + 1.0))).sum());
      EXPECT_EQ(layer->weight.grad().item<float>(), 9);  // 2 w x, averaged over x = 1, 2
      layer->zero_grad();
    }
  });
}

TEST(DdpPasses, AGraphMayRunInsideAnother) {
  for (const bool is_static : {false, true}) {
    run_ranks(2, [=](const Communicator& comm) {
      auto model = make_plain_model();
      DdpEngine engine(*model, comm, {.static_graph = is_static});
      const auto first = [&](const at::Tensor& x) {
        return model->children()[0]->as<torch::nn::Linear>()->forward(x).tanh();
      };
      for (int step = 0; step < 3; ++step) {
        engine.backward(loss_of(model, share(batch(step), comm)));
        const auto expected = flat(gradients(*model));
        model->zero_grad();
        const auto hidden = Reentrant::apply(share(batch(step), comm).clone().requires_grad_(), first);
        engine.backward(model->children()[2]->as<torch::nn::Linear>()->forward(hidden).pow(2).mean());
        EXPECT_TRUE(at::allclose(flat(gradients(*model)), expected, 1e-5, 1e-7));
        model->zero_grad();
      }
    });
  }
}

// The first call's backward averages; the second would add to averages what is each rank's own.
TEST(DdpPasses, AWholeModelInTwoCheckpointsIsRefusedOrStatic) {
  for (const bool is_static : {false, true}) {
    run_ranks(2, [=](const Communicator& comm) {
      auto layer = make_layer(3, 2);
      DdpEngine engine(*layer, comm, {.static_graph = is_static});
      const auto call = [&] {
        const auto input = at::full({1, 3}, comm.rank() + 1.0).requires_grad_();
        return Reentrant::apply(input, [&](const at::Tensor& x) { return layer->forward(x); }).sum();
      };
      for (int step = 0; step < 3; ++step) {
        if (is_static) {
          engine.backward(call() + call());
          EXPECT_EQ(layer->weight.grad()[0][0].item<float>(), 3);
        } else {
          expect_error<CommError>([&] { engine.backward(call() + call()); },
                                  {"weight", "static_graph = true"});
        }
        layer->zero_grad();
      }
      if (is_static) return;
      engine.backward(call());
      EXPECT_EQ(layer->weight.grad()[0][0].item<float>(), 1.5f);
    });
  }
}

// A parameter is used in local passes only: of every window, or of later ones.
TEST(DdpPasses, AStaticGraphCoversWholeWindows) {
  run_ranks(2, [](const Communicator& comm) {
    auto local = make_layer(1, 1), averaged = make_layer(1, 1);
    torch::nn::Sequential model(local, averaged);
    DdpEngine engine(*model, comm, {.static_graph = true});
    for (int window = 0; window < 3; ++window) {
      local->forward(at::full({1, 1}, comm.rank() + 1.0)).sum().backward();
      engine.backward(averaged->forward(at::ones({1, 1})).sum());
      EXPECT_EQ(local->weight.grad().item<float>(), 1.5f) << "window " << window;
      model->zero_grad();
    }
    DdpEngine other(*model, comm, {.static_graph = true});
    other.backward(averaged->forward(at::ones({1, 1})).sum());
    local->forward(at::ones({1, 1})).sum().backward();
    expect_error<ConfigError>(
        [&] {
          other.backward(averaged->forward(at::ones({1, 1})).sum());
        },
        {"static_graph", "0.weight", "find_unused_parameters = true"});
  });
}

// As the discriminator of a GAN, which is only passed through in between.
TEST(DdpPasses, GradientsMayBeClearedBeforeTheAveragedPass) {
  run_ranks(2, [](const Communicator& comm) {
    auto passed = make_layer(1, 1), trained = make_layer(1, 1);
    torch::nn::Sequential model(passed, trained);
    DdpEngine engine(*model, comm, {.find_unused_parameters = true});
    for (int step = 0; step < 2; ++step) {
      passed->forward(at::ones({1, 1})).sum().backward();
      model->zero_grad();
      engine.backward(trained->forward(at::full({1, 1}, comm.rank() + 1.0)).sum());
      EXPECT_FALSE(passed->weight.grad().defined());
      EXPECT_EQ(trained->weight.grad().item<float>(), 1.5f);
      model->zero_grad();
    }
  });
}

TEST(DdpPasses, AGraphOfTheGradientsIsRefusedUnlessLocal) {
  run_ranks(2, [](const Communicator& comm) {
    auto layer = make_layer(3, 1);
    DdpEngine engine(*layer, comm);
    const auto loss = [&] { return layer->forward(at::ones({1, 3})).pow(2).sum(); };
    expect_error<ConfigError>([&] { engine.backward(loss(), {.create_graph = true}); },
                              {"create_graph", "autograd_grad"});
    {
      const auto local = engine.no_sync();
      engine.backward(loss(), {.create_graph = true});
      EXPECT_TRUE(layer->weight.grad().requires_grad());
      layer->weight.mutable_grad().reset();
    }
    engine.backward(loss());
  });
}

}  // namespace
}  // namespace lockstep
