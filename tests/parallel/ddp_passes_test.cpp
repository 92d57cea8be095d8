// Several backward passes per step, accumulation, tied and repeated parameters, graphs within graphs.
#include <gtest/gtest.h>

#include <lockstep/testing/run_ranks.h>

#include "ddp_support.h"

namespace lockstep {
namespace {

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

// An activation checkpoint: its backward runs a graph of its own inside of the outer one.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            std::function<at::Tensor(const at::Tensor&)> body) {
    context->save_for_backward({input});
    context->saved_data["body"] = static_cast<std::int64_t>(
        reinterpret_cast<std::intptr_t>(new std::function<at::Tensor(const at::Tensor&)>(std::move(body))));
    const at::NoGradGuard no_grad;
    return (*body_of(context))(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const std::unique_ptr<std::function<at::Tensor(const at::Tensor&)>> body(body_of(context));
    const at::AutoGradMode enable(true);
    const auto input = context->get_saved_variables()[0].detach().requires_grad_();
    (*body)(input).backward(gradients[0]);
    return {input.grad(), at::Tensor()};
  }
  static std::function<at::Tensor(const at::Tensor&)>* body_of(torch::autograd::AutogradContext* context) {
    return reinterpret_cast<std::function<at::Tensor(const at::Tensor&)>*>(
        static_cast<std::intptr_t>(context->saved_data["body"].toInt()));
  }
};

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

}  // namespace
}  // namespace lockstep
