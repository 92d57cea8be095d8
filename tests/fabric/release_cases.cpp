// Models that are released, changed and set up again: under every strategy that shards as under ddp.
#include <filesystem>

#include "cases.h"

namespace fabric_case {

namespace {

struct Choice {
  std::string name;
  ls::StrategyOptions strategy;
  ls::PrecisionOptions precision = {};
};

std::vector<Choice> sharding() {
  std::vector<Choice> choices{
      {"fsdp", ls::Fsdp{}},
      {"fsdp, SHARD_GRAD_OP", ls::Fsdp{.sharding_strategy = ls::ShardingStrategy::kShardGradOp}}};
  for (const int stage : {0, 1, 2, 3})
    choices.push_back({"stage " + std::to_string(stage), ls::DeepSpeed{.stage = stage}});
  return choices;
}

ls::Fabric fabric_of(const Choice& choice) {
  ls::Fabric fabric({.strategy = choice.strategy, .precision = choice.precision});
  fabric.launch();
  return fabric;
}

// Large enough to be cut, and for cuts to move with what is frozen.
nn::Sequential tower() {
  torch::manual_seed(5);
  return nn::Sequential(nn::Linear(40, 64), nn::Tanh(), nn::Linear(64, 40), nn::Tanh(), nn::Linear(40, 3));
}

void freeze(nn::Sequential& model, std::size_t layer, bool is_frozen) {
  for (auto& parameter : model->children()[layer]->parameters()) parameter.set_requires_grad(!is_frozen);
}

torch::Tensor loss_on(ls::Fabric& fabric, nn::Sequential& model, int step) {
  const auto rows = rows_of_rank(fabric, all_rows(fabric, 40)) + 0.1 * step;
  return model->forward(rows.to(model->parameters()[0].scalar_type())).pow(2).mean();
}

void train(ls::Fabric& fabric, nn::Sequential& model, const std::shared_ptr<ls::FabricOptimizer>& optimizer,
           int steps) {
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    fabric.backward(loss_on(fabric, model, step));
    fabric.clip_gradients(model, optimizer, {.max_norm = 0.5});
    optimizer->step();
  }
}

// What `body(fabric)` gives under each of them is what it gives under ddp.
template <class Body>
void require_as_ddp(const Body& body) {
  const auto run = [&](const Choice& choice) {
    auto fabric = fabric_of(choice);
    const torch::Tensor weights = body(fabric);
    require_equal_on_all_ranks(fabric, weights);
    return weights;
  };
  const auto expected = run({"ddp", ls::Ddp{}});
  for (const auto& choice : sharding()) {
    const auto found = run(choice);
    require(torch::allclose(found, expected, 1e-4, 1e-5), "the weights of ddp under " + choice.name);
  }
}

template <class Optimizer>
torch::Tensor freezing_between(ls::Fabric& fabric, const Optimizer& options) {
  auto [model, optimizer] = fabric.setup(tower(), options);
  train(fabric, model, optimizer, 3);
  for (const bool is_frozen : {true, false}) {
    fabric.release(model);
    freeze(model, 2, is_frozen);
    fabric.setup(model);
    train(fabric, model, optimizer, 3);
  }
  return flat_weights(*model);
}

// One weight, whose gradient is -1 in every step of SGD.
struct ScalesImpl : nn::Module {
  explicit ScalesImpl(double start) {
    w = register_parameter("w", torch::full({4}, start));
    other = register_parameter("other", torch::zeros({3000}));
  }
  torch::Tensor w, other;
};
TORCH_MODULE(Scales);

double weight_after(const Choice& choice, double start, double lr) {
  auto fabric = fabric_of(choice);
  auto [model, optimizer] = fabric.setup(Scales(start), ls::SGD{.lr = lr});
  const auto steps = [&, &model = model, &optimizer = optimizer] {
    for (int step = 0; step < 4; ++step) {
      optimizer->zero_grad();
      auto loss = -model->w.sum();
      if (model->other.requires_grad()) loss = loss - model->other.sum();
      fabric.backward(loss);
      optimizer->step();
    }
  };
  steps();
  fabric.release(model);
  model->other.set_requires_grad(false);
  fabric.setup(model);
  steps();
  const torch::NoGradGuard no_grad;
  require((model->other == model->other[0]).all().item<bool>(), "what is frozen stays under " + choice.name);
  return model->w.clone()[0].item<double>();
}

}  // namespace

// Moments, counts of steps and masters of those that are trained on go with them to their new places.
void released_and_frozen(ls::Fabric&) {
  require_as_ddp([](ls::Fabric& fabric) {
    return freezing_between(fabric, ls::AdamW{.lr = 0.01, .weight_decay = 0.1});
  });
  require_as_ddp(
      [](ls::Fabric& fabric) { return freezing_between(fabric, ls::SGD{.lr = 0.1, .momentum = 0.9}); });
  require_as_ddp([](ls::Fabric& fabric) { return freezing_between(fabric, ls::Lamb{.lr = 0.01}); });
  for (auto& choice : sharding()) {
    require(weight_after(choice, 0, 1) == 8, "eight steps under " + choice.name);
    choice.precision = ls::Bf16Mixed{};
    require(weight_after(choice, 0, 1) == 8, "eight steps in bf16-mixed under " + choice.name);
  }
  // A step is less than bfloat16 has room for.
  for (const int stage : {1, 2, 3}) {
    const Choice choice{"stage " + std::to_string(stage), ls::DeepSpeed{.stage = stage}, ls::Bf16True{}};
    require(weight_after(choice, 1, std::ldexp(1.0, -10)) == 1 + std::ldexp(1.0, -7),
            "masters under " + choice.name);
  }
}

// Files of state do not grow: on one rank nothing moves.
void released_with_state_on_disk(ls::Fabric& launched) {
  ls::DeepSpeed options{.stage = 3, .offload_optimizer = true};
  options.offload_optimizer_device = ls::deepspeed::OffloadDevice::kNvme;
  options.nvme_path = std::filesystem::current_path();
  auto fabric = fabric_of({"state on disk", options});
  if (launched.world_size() == 1) {
    auto other = fabric_of({"ddp", ls::Ddp{}});
    const ls::AdamW adamw{.lr = 0.01};
    require(torch::allclose(freezing_between(fabric, adamw), freezing_between(other, adamw), 1e-4, 1e-5),
            "the weights of ddp with state on disk");
  } else {
    require_error([&] { freezing_between(fabric, ls::AdamW{}); }, "state on disk, of another size");
  }
}

// While it is whole, its optimizers would step what is no longer the model's.
void released_and_converted(ls::Fabric&) {
  const auto converting = [](ls::Fabric& fabric, double momentum, bool restores = false) {
    auto [model, optimizer] = fabric.setup(tower(), ls::SGD{.lr = 0.1, .momentum = momentum});
    train(fabric, model, optimizer, 2);
    fabric.release(model);
    if (restores) {
      ls::restore_sharded(*model);
      require_error([&, &optimizer = optimizer] { optimizer->step(); }, "setup() the model again");
    }
    model->to(torch::kDouble);
    fabric.setup(model);
    train(fabric, model, optimizer, 2);
    const auto weights = flat_weights(*model);
    require(weights.scalar_type() == torch::kDouble, "in the type that it was converted to");
    return weights;
  };
  require_as_ddp([&](ls::Fabric& fabric) { return converting(fabric, 0); });
  for (auto choice : sharding()) {
    choice.precision = ls::Bf16Mixed{};
    auto fabric = fabric_of(choice);
    auto model = fabric.setup(tower());
    auto before = fabric.strategy().module_state(*model);
    fabric.release(model);
    model->to(torch::kDouble);
    fabric.setup(model);
    for (const auto& [name, weights] : fabric.strategy().module_state(*model))
      require(torch::equal(weights, before.at(name).to(torch::kDouble)), "all digits under " + choice.name);
  }
  for (const auto& choice : sharding()) {
    auto fabric = fabric_of(choice), other = fabric_of({"ddp", ls::Ddp{}});
    auto [model, optimizer] = other.setup(tower(), ls::SGD{.lr = 0.1, .momentum = 0.9});
    for (int times = 0; times < 2; ++times) train(other, model, optimizer, 2);
    for (const bool restores : {false, true})
      require(torch::allclose(converting(fabric, 0.9, restores), flat_weights(*model).to(torch::kDouble),
                              1e-4, 1e-5),
              "momentum is kept under " + choice.name);
  }
}

// Gradients that have come by then count, whether they were averaged or wait for that.
void released_amid_accumulation(ls::Fabric&) {
  for (const bool changes : {false, true}) {
    require_as_ddp([changes](ls::Fabric& fabric) {
      auto [model, optimizer] = fabric.setup(tower(), ls::SGD{.lr = 0.1});
      const auto set_up_again = [&, &model = model](bool is_frozen) {
        fabric.release(model);
        if (changes) freeze(model, 0, is_frozen);
        fabric.setup(model);
      };
      set_up_again(true);
      {
        const auto window = fabric.no_backward_sync(model);
        fabric.backward(loss_on(fabric, model, 1));
      }
      set_up_again(false);
      fabric.backward(loss_on(fabric, model, 2));
      optimizer->step();
      return flat_weights(*model);
    });
  }
}

}  // namespace fabric_case
