// One backward of several models: each model's gradients are averaged with its own, whatever order each
// rank's graph has.
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

const std::vector<Ddp> kModes{Ddp{}, Ddp{.bucket_cap_mb = 0.00001}, Ddp{.find_unused_parameters = true},
                              Ddp{.static_graph = true},
                              Ddp{.ddp_comm_hook = DdpCommHook::kPowerSgd,
                                  .ddp_comm_state = {.start_powerSGD_iter = 2, .min_compression_rate = 0.1}}};

// Two equal towers, of two layers each.
struct Towers {
  Towers(const Communicator& comm, const Ddp& options)
      : first(*query, comm, options), second(*key, comm, options) {}

  void backward(const at::Tensor& loss) {
    DdpEngine* const engines[] = {&second, &first};
    DdpEngine::backward(loss, engines);
  }
  void zero_grad() {
    query->zero_grad();
    key->zero_grad();
  }

  torch::nn::Sequential query{make_layer(4, 4), make_layer(4, 4)}, key{make_layer(4, 4), make_layer(4, 4)};
  DdpEngine first, second;
};

TEST(DdpModels, TheOrderOfTheGraphIsEachRanksOwn) {
  for (const auto& options : kModes) {
    run_ranks(2, [&](const Communicator& comm) {
      Towers towers(comm, options);
      const auto input = at::full({1, 4}, comm.rank() + 1.0);
      for (int step = 0; step < 5; ++step) {
        towers.query->forward(input).sum().backward();
        auto expected = flat(gradients(*towers.query));
        comm.all_reduce(expected, ReduceOp::kAvg);
        towers.zero_grad();
        at::Tensor query, key;
        if ((comm.rank() + step) % 2 == 0) query = towers.query->forward(input);
        key = towers.key->forward(input) * 10;
        if (!query.defined()) query = towers.query->forward(input);
        towers.backward(query.sum() + key.sum());
        EXPECT_TRUE(at::allclose(flat(gradients(*towers.query)), expected, 1e-4, 1e-5)) << "step " << step;
        EXPECT_TRUE(at::allclose(flat(gradients(*towers.key)), expected * 10, 1e-4, 1e-4)) << "step " << step;
        towers.zero_grad();
      }
    });
  }
}

// Where one parameter, and where the whole first model, is left out on one rank.
TEST(DdpModels, UnusedParametersMayDifferBetweenRanks) {
  run_ranks(2, [](const Communicator& comm) {
    Towers towers(comm, {.bucket_cap_mb = 0.00001, .find_unused_parameters = true});
    const auto input = at::ones({1, 4});
    const auto layer = [](torch::nn::Sequential& model, std::size_t index) {
      return model[index]->as<torch::nn::Linear>();
    };
    for (int step = 0; step < 4; ++step) {
      auto loss = layer(towers.key, 1)->forward(layer(towers.key, 0)->forward(input) * 10).sum();
      if (comm.rank() == 0) loss = loss + layer(towers.query, 0)->forward(input).sum();
      if (comm.rank() == 0 || step % 2 == 0) loss = loss + layer(towers.query, 1)->forward(input).sum();
      towers.backward(loss);
      EXPECT_EQ(layer(towers.query, 0)->weight.grad()[0][0].item<float>(), 0.5f);
      EXPECT_EQ(layer(towers.query, 1)->weight.grad()[0][0].item<float>(), step % 2 == 0 ? 1 : 0.5f);
      expect_same_bits(comm, flat(gradients(*towers.key)));
      EXPECT_FALSE(flat(gradients(*towers.key)).equal(at::zeros({32})));
      towers.zero_grad();
    }
  });
}

TEST(DdpModels, NamesAModelThatTheLossLeavesOut) {
  for (const Ddp& options : {Ddp{}, Ddp{.static_graph = true}}) {
    run_ranks(2, [&](const Communicator& comm) {
      Towers towers(comm, options);
      const auto input = at::full({1, 4}, comm.rank() + 1.0);
      for (int step = 0; step < 2; ++step) {
        expect_error<ConfigError>([&] { towers.backward(towers.key->forward(input).sum()); },
                                  {"no parameter", "0.weight", "find_unused_parameters"});
        towers.zero_grad();
        comm.barrier();  // what the key has begun to send is over
        const auto sent = comm.bytes_sent();
        {
          const auto local = towers.first.no_sync();
          towers.first.backward(towers.query->forward(input).sum());
        }
        EXPECT_EQ(comm.bytes_sent(), sent) << "a local pass communicated";
        towers.zero_grad();
        towers.backward(towers.query->forward(input).sum() + towers.key->forward(input).sum());
        expect_same_bits(comm, flat(gradients(*towers.query)));
        towers.zero_grad();
      }
    });
  }
}

// A rank whose batch has nothing for the model averages zeros, and what it has accumulated.
TEST(DdpModels, ARankMayUseNoParameterWhereUnusedOnesAreFound) {
  run_ranks(2, [](const Communicator& comm) {
    auto layer = make_layer(3, 2);
    DdpEngine engine(*layer, comm, {.find_unused_parameters = true});
    const auto other = at::ones({2}).requires_grad_();
    const auto loss = [&] { return layer->forward(at::full({1, 3}, comm.rank() + 1.0)).sum(); };
    for (int step = 0; step < 3; ++step) {
      engine.backward(comm.rank() == 1 ? (other * 2).sum() : loss());
      EXPECT_EQ(layer->weight.grad()[0][0].item<float>(), 0.5f);
      layer->zero_grad();
      loss().backward();
      engine.backward(comm.rank() == 1 ? (other * 2).sum() : loss());
      EXPECT_EQ(layer->weight.grad()[0][0].item<float>(), 2);  // (1 + 1 + 2) / 2
      layer->zero_grad();
      engine.backward((other * 2).sum());
      EXPECT_FALSE(layer->weight.grad().defined());
      const auto sent = comm.bytes_sent();
      const auto local = engine.no_sync();
      engine.backward(loss());
      EXPECT_EQ(comm.bytes_sent(), sent);
      layer->zero_grad();
    }
  });
}

// A checkpoint's backward, which runs within the outer one, is no end of the outer one.
TEST(DdpModels, CheckpointsMayRunInAnyOrder) {
  run_ranks(2, [](const Communicator& comm) {
    Towers towers(comm, {});
    const auto input = at::full({1, 4}, comm.rank() + 1.0);
    const auto hidden = [&](torch::nn::Sequential& model) {
      return Reentrant::apply(input.clone().requires_grad_(),
                              [&](const at::Tensor& x) { return model->forward(x); });
    };
    const auto gradients_of_both = [&](const at::Tensor& loss) {
      towers.backward(loss);
      const auto all = at::cat({flat(gradients(*towers.key)), flat(gradients(*towers.query))});
      towers.zero_grad();
      return all;
    };
    const auto expected =
        gradients_of_both(towers.key->forward(input).sum() + towers.query->forward(input).sum());
    expect_same_bits(comm, expected);
    EXPECT_TRUE(at::allclose(gradients_of_both(hidden(towers.key).sum() + towers.query->forward(input).sum()),
                             expected));
    const auto key = towers.key->forward(input).sum();  // built first: its gradients come last
    EXPECT_TRUE(at::allclose(gradients_of_both(key + hidden(towers.query).sum()), expected));
  });
}

TEST(DdpModels, AFailureForgetsOnlyTheModelsOfThatBackward) {
  run_ranks(2, [](const Communicator& comm) {
    testing::CountingBackend counting(comm);
    Towers towers(counting.communicator(), {});
    const auto input = at::ones({1, 4});
    for (int step = 0; step < 2; ++step) {
      towers.backward(towers.query->forward(input).sum() + towers.key->forward(input).sum());
      towers.zero_grad();
    }
    const auto loss = towers.key->forward(input).sum();
    loss.register_hook([](const at::Tensor&) { throw std::runtime_error("not today"); });
    expect_error<std::runtime_error>([&] { towers.second.backward(loss); }, {"not today"});
    const auto broadcasts_of = [&](DdpEngine& engine, torch::nn::Sequential& model) {
      for (int pass = 0; pass < 2; ++pass) {
        counting.clear();
        engine.backward(model->forward(input).sum());
      }
      return counting.count("broadcast");
    };
    EXPECT_EQ(broadcasts_of(towers.first, towers.query), 0u) << "buckets were planned anew";
    EXPECT_GT(broadcasts_of(towers.second, towers.key), 0u);
  });
}

}  // namespace
}  // namespace lockstep
