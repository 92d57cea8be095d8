// DdpEngine and what should not happen: modules that change, passes that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/testing/wrapped_backends.h>

#include "../support/expect_error.h"
#include "ddp_support.h"

namespace lockstep {
namespace {

using test::expect_error;
using testing::run_ranks;

// What backward() says after `change`.
template <class Change>
void expect_refusal(const std::vector<std::string>& parts, Change change, const Ddp& options = {}) {
  run_ranks(2, [&](const Communicator& comm) {
    torch::nn::Sequential model(torch::nn::Linear(3, 3), torch::nn::BatchNorm1d(3), torch::nn::Linear(3, 1));
    model->children()[2]->parameters()[1].set_requires_grad(false);
    DdpEngine engine(*model, comm, options);
    change(*model);
    const auto loss = model->parameters()[0].sum();
    expect_error<ConfigError>([&] { engine.backward(loss); }, parts);
  });
}

TEST(DdpChanges, NamesAParameterOfAnotherDtype) {
  expect_refusal({"parameter 0.weight", "Float on cpu", "Double on cpu", "trained", "set it up again"},
                 [](torch::nn::Module& model) { model.to(at::kDouble); });
}

TEST(DdpChanges, NamesAParameterOfAnotherShape) {
  expect_refusal({"parameter 2.weight", "[1, 3]", "[2, 3]"}, [](torch::nn::Module& model) {
    model.children()[2]->parameters()[0].set_data(at::ones({2, 3}));
  });
}

TEST(DdpChanges, NamesAParameterThatWasFrozen) {
  const auto freeze = [](torch::nn::Module& model) {
    model.children()[0]->parameters()[1].set_requires_grad(false);
  };
  expect_refusal({"parameter 0.bias", "trained", "frozen"}, freeze);
  expect_refusal({"parameter 0.bias"}, freeze, {.find_unused_parameters = true, .static_graph = true});
}

TEST(DdpChanges, NamesAParameterThatWasUnfrozen) {
  for (const bool finds : {false, true}) {
    expect_refusal(
        {"parameter 2.bias", "frozen", "trained"},
        [](torch::nn::Module& model) { model.children()[2]->parameters()[1].set_requires_grad(true); },
        {.find_unused_parameters = finds});
  }
}

TEST(DdpChanges, NamesWhatWasAddedRemovedOrReplaced) {
  struct Net : torch::nn::Module {
    Net() { first = register_parameter("first", at::ones({2})), register_buffer("count", at::ones({1})); }
    void replace() { parameters_["first"] = at::ones({2}, at::TensorOptions().requires_grad(true)); }
    void add_buffer() { register_buffer("late", at::ones({1})); }
    void add() { register_parameter("second", at::ones({2})); }
    void remove() { parameters_.erase("first"); }
    at::Tensor first;
  };
  const auto expect = [](void (Net::*change)(), const std::vector<std::string>& parts) {
    run_ranks(2, [&](const Communicator& comm) {
      const auto net = std::make_shared<Net>();
      DdpEngine engine(*net, comm);
      engine.backward(net->first.sum());
      (net.get()->*change)();
      expect_error<ConfigError>([&] { engine.backward(net->first.sum()); }, parts);
    });
  };
  expect(&Net::replace, {"parameter first", "another one"});
  expect(&Net::add_buffer, {"buffer late", "added"});
  expect(&Net::add, {"parameter second", "added"});
  expect(&Net::remove, {"parameter first", "removed"});
}

// Optimizers move parameters into arenas, checkpoints load into new storage.
TEST(DdpChanges, AllowsNewStorage) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm);
    for (auto& parameter : model->parameters()) parameter.set_data(parameter.detach().clone());
    train_step(model, engine, share(batch(0), comm));
    expect_same_bits(comm, flat(model->parameters()));
  });
}

TEST(DdpChanges, LetsParametersRestWhereUnusedOnesAreFound) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm, {.find_unused_parameters = true});
    auto resting = model->parameters()[0];
    for (const bool rests : {false, true, false}) {
      resting.set_requires_grad(!rests);
      engine.backward(loss_of(model, share(batch(0), comm)));
      EXPECT_EQ(resting.grad().defined(), !rests);
      model->zero_grad();
    }
  });
}

// Conversion drops what follows a parameter's gradients, even if the parameter is the same afterwards.
TEST(DdpChanges, NamesAParameterThatWasConvertedAndBack) {
  for (const Ddp& options : {Ddp{}, Ddp{.find_unused_parameters = true}, Ddp{.static_graph = true}}) {
    run_ranks(2, [&](const Communicator& comm) {
      auto model = make_plain_model();
      DdpEngine engine(*model, comm, options);
      train_step(model, engine, share(batch(0), comm));
      model->to(at::kBFloat16);
      model->to(at::kFloat);
      expect_error<ConfigError>([&] { engine.backward(loss_of(model, share(batch(0), comm))); },
                                {"parameter 0.weight", "converted"});
      DdpEngine again(*model, comm, options);
      train_step(model, again, share(batch(0), comm));
      expect_same_bits(comm, flat(model->parameters()));
    });
  }
}

TEST(DdpChanges, NamesAParameterOfOtherStrides) {
  run_ranks(2, [](const Communicator& comm) {
    torch::nn::Conv2d layer(torch::nn::Conv2dOptions(3, 4, 3).bias(false));
    DdpEngine engine(*layer, comm);
    layer->weight.set_data(layer->weight.contiguous(at::MemoryFormat::ChannelsLast));
    expect_error<ConfigError>(
        [&] {
          engine.backward(layer->forward(at::ones({1, 3, 5, 5})).sum());
        },
        {"parameter weight", "strides"});
  });
}

// What is refused may be undone, and what failed while a parameter rested leaves no trace.
TEST(DdpChanges, GoesOnWithParametersThatWereFrozen) {
  for (const bool finds : {false, true}) {
    run_ranks(2, [=](const Communicator& comm) {
      auto model = make_plain_model();
      DdpEngine engine(*model, comm, {.find_unused_parameters = finds});
      const auto input = share(batch(0), comm);
      engine.backward(loss_of(model, input));
      const auto expected = flat(gradients(*model));
      model->zero_grad();
      model->parameters()[0].set_requires_grad(false);
      if (finds) {
        engine.backward(loss_of(model, input));
        const auto loss = loss_of(model, input);
        loss.register_hook([](const at::Tensor&) { throw std::runtime_error("not today"); });
        expect_error<std::runtime_error>([&] { engine.backward(loss); }, {"not today"});
        model->zero_grad();
        engine.backward(loss_of(model, input));
      } else {
        expect_error<ConfigError>([&] { engine.backward(loss_of(model, input)); }, {"0.weight", "frozen"});
      }
      EXPECT_FALSE(model->parameters()[0].requires_grad());
      model->parameters()[0].set_requires_grad(true);
      model->zero_grad();
      engine.backward(loss_of(model, input));
      EXPECT_TRUE(flat(gradients(*model)).equal(expected));
    });
  }
}

TEST(DdpChanges, NamesSparseGradients) {
  run_ranks(2, [](const Communicator& comm) {
    torch::nn::Sequential model(torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 3).sparse(true)));
    expect_error<ConfigError>([&] { DdpEngine(*model, comm); }, {"sparse", "those of 0"});
    torch::nn::Embedding table(10, 3);
    DdpEngine engine(*table, comm);
    const auto rows = torch::nn::functional::embedding(
        at::tensor({1, 2}), table->weight, torch::nn::functional::EmbeddingFuncOptions().sparse(true));
    expect_error<ConfigError>([&] { engine.backward(rows.sum()); }, {"sparse", "weight"});
  });
}

// Throws in the middle of backward as long as `fails`, on every rank.
void backward_with_failure(torch::nn::Sequential& model, DdpEngine& engine, const at::Tensor& input) {
  auto hidden = model->children()[0]->as<torch::nn::Linear>()->forward(input);
  hidden.register_hook([](const at::Tensor& gradient) -> at::Tensor {
    throw std::runtime_error("no gradient today");
    return gradient;
  });
  engine.backward(model->children()[2]->as<torch::nn::Linear>()->forward(hidden).sum());
}

TEST(DdpChanges, AFailedPassLeavesTheNextOneClean) {
  run_ranks(2, [](const Communicator& comm) {
    for (const Ddp& options : {Ddp{.bucket_cap_mb = 0.00001}, Ddp{.find_unused_parameters = true},
                               Ddp{.static_graph = true}, Ddp{.gradient_as_bucket_view = true}}) {
      auto model = make_plain_model();
      DdpEngine engine(*model, comm, options);
      for (int step = 0; step < 3; ++step) {
        engine.backward(loss_of(model, share(batch(step), comm)));
        const auto expected = flat(gradients(*model));
        model->zero_grad();
        expect_error<std::runtime_error>(
            [&] { backward_with_failure(model, engine, share(batch(step), comm)); }, {"no gradient today"});
        model->zero_grad();
        engine.backward(loss_of(model, share(batch(step), comm)));
        EXPECT_TRUE(flat(gradients(*model)).equal(expected)) << step;
        model->zero_grad();
      }
    }
  });
}

TEST(DdpChanges, AnUnusedParameterLeavesTheNextPassClean) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm);
    for (int step = 0; step < 2; ++step) {
      const auto loss = model->children()[0]->as<torch::nn::Linear>()->forward(batch(0)).sum();
      expect_error<CommError>([&] { engine.backward(loss); },
                              {"2.weight, 2.bias", "find_unused_parameters = true"});
      model->zero_grad();
      engine.backward(loss_of(model, share(batch(0), comm)));
      model->zero_grad();
    }
  });
}

TEST(DdpChanges, NamesALossWithoutTheModel) {
  for (const Ddp& options : {Ddp{}, Ddp{.static_graph = true}}) {
    run_ranks(2, [&](const Communicator& comm) {
      auto model = make_plain_model();
      DdpEngine engine(*model, comm, options);
      for (int step = 0; step < 2; ++step) {
        const auto other = at::ones({2}).requires_grad_();
        expect_error<ConfigError>([&] { engine.backward((other * 2).sum()); }, {"no parameter", "0.weight"});
        engine.backward(loss_of(model, share(batch(0), comm)));
        expect_same_bits(comm, flat(gradients(*model)));
        model->zero_grad();
      }
    });
  }
}

TEST(DdpChanges, NamesALossWithoutAGradient) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm);
    auto other = make_plain_model();
    ShardedEngine sharded(*other, comm, Fsdp{});
    const auto input = share(batch(0), comm);
    const auto rank = "rank " + std::to_string(comm.rank());
    expect_error<ConfigError>([&] { engine.backward(loss_of(model, input).detach()); },
                              {"does not require a gradient", "detached", rank});
    expect_error<ConfigError>([&] { sharded.backward(at::ones({})); }, {"does not require a gradient", rank});
    engine.backward(loss_of(model, input));
    expect_same_bits(comm, flat(gradients(*model)));
  });
}

TEST(DdpChanges, NamesWhatBreaksTheStaticGraph) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm, {.static_graph = true});
    engine.backward(loss_of(model, share(batch(0), comm)));
    const auto loss = model->children()[0]->as<torch::nn::Linear>()->forward(batch(0)).sum();
    expect_error<CommError>([&] { engine.backward(loss); }, {"2.weight", "static_graph = false"});
    model->zero_grad();
    engine.backward(model->children()[0]->as<torch::nn::Linear>()->forward(batch(0)).sum());
    model->zero_grad();
    expect_error<CommError>([&] { engine.backward(loss_of(model, share(batch(0), comm))); },
                            {"left out", "static_graph = false"});
  });
}

// The set of unused parameters changes from step to step.
TEST(DdpChanges, UnusedParametersMayChange) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    DdpEngine engine(*model, comm, {.find_unused_parameters = true});
    for (int step = 0; step < 4; ++step) {
      const auto& layer = *model->children()[0]->as<torch::nn::Linear>();
      const auto whole = step % 2 == 0;
      engine.backward(whole ? loss_of(model, share(batch(0), comm))
                            : (batch(0).matmul(layer.weight.t()) + layer.bias).sum());
      EXPECT_EQ(model->parameters()[2].grad().defined(), whole);
      model->zero_grad();
    }
    EXPECT_FALSE(engine.logging_data().can_set_static_graph);
  });
}

TEST(DdpChanges, AFailedCollectiveIsWhatBackwardThrows) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_plain_model();
    const testing::FaultyBackend faulty(comm, {.nth = 2, .collective = "all_reduce"});
    DdpEngine engine(*model, faulty.communicator());
    engine.backward(loss_of(model, share(batch(0), comm)));
    model->zero_grad();
    expect_error<CommError>([&] { engine.backward(loss_of(model, share(batch(0), comm))); },
                            {"all_reduce fails by request"});
    model->zero_grad();
    engine.backward(loss_of(model, share(batch(0), comm)));
    expect_same_bits(comm, flat(gradients(*model)));
  });
}

TEST(DdpChanges, RefusesContradictions) {
  run_ranks(2, [](const Communicator& comm) {
    torch::nn::Linear layer(1, 1);
    expect_error<ConfigError>([&] { DdpEngine(*layer, comm, {.skip_all_reduce_unused_params = true}); },
                              {"skip_all_reduce_unused_params", "find_unused_parameters"});
    expect_error<ConfigError>([&] { power_sgd_hook({.start_powerSGD_iter = 1}); },
                              {"start_powerSGD_iter", "2"});
    DdpEngine engine(*layer, comm);
    engine.backward(layer->forward(at::ones({1, 1})).sum());
    expect_error<ConfigError>([&] { engine.register_comm_hook(noop_hook()); },
                              {"register_comm_hook", "before"});
  });
}

}  // namespace
}  // namespace lockstep
