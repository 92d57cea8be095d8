// setup() in its forms, and what became of models and errors.
#include "cases.h"

namespace fabric_case {

void setup_forms(ls::Fabric& fabric) {
  auto [model, optimizer] = fabric.setup(net_of(100 + fabric.global_rank()), ls::SGD{.lr = 0.1});
  static_assert(std::is_same_v<decltype(model), Net>);
  require_equal_on_all_ranks(fabric, flat_weights(*model));
  require(optimizer->name() == "SGD" && optimizer->groups()[0].lr == 0.1, "the optimizer asked for");
  ls::Scheduler scheduler(ls::StepLR{.step_size = 1}, *optimizer);
  scheduler.step();
  require(optimizer->groups()[0].lr < 0.05, "schedulers reach it");

  const auto pointer = std::make_shared<NetImpl>();
  require(fabric.setup(pointer) == pointer, "shared pointers, without an optimizer");
  const auto only = [](const std::string& name) {
    return [name](std::vector<ls::NamedParameter> all) {
      std::erase_if(all,
                    [&](const auto& parameter) { return parameter.name.find(name) == std::string::npos; });
      return ls::OptimizerFactory(ls::SGD{}).create(std::move(all));
    };
  };
  const auto [bias, weight] = fabric.setup_optimizers(pointer, only("bias"), only("weight"));
  require(bias->parameters().size() == 2 && weight->parameters().size() == 2, "shares of the parameters");
  auto [third, one, two] = fabric.setup(Net(), ls::SGD{}, ls::AdamW{});
  require(one->name() == "SGD" && two->name() == "AdamW", "several optimizers");

  torch::set_default_dtype(caffe2::TypeMeta::fromScalarType(torch::kDouble));
  {
    const auto scope = fabric.init_module();
    require(Net()->parameters()[0].scalar_type() == torch::kFloat, "float32 in init_module()");
  }
  require(Net()->parameters()[0].scalar_type() == torch::kDouble, "and only there");
  torch::set_default_dtype(caffe2::TypeMeta::fromScalarType(torch::kFloat));
  require(fabric.to_device(model).ptr() == model.ptr(), "models move in place");
  const auto batch = fabric.to_device(ls::Example{.data = torch::ones({2}), .target = {}});
  require(batch.data.device() == fabric.device() && !batch.target.defined(), "batches move");

  require_error([&] { fabric.setup(model); }, "set up already");
  require_error([&] { fabric.setup(model->net); }, "parameter 0.weight");
  require_error([&] { fabric.setup_optimizers(Net(), ls::SGD{}); }, "not set up");
  require_error([&] { fabric.setup(std::shared_ptr<NetImpl>()); }, "null");
}

// Ranks that step with other settings would part in silence.
void optimizers_of_ranks_differ(ls::Fabric& fabric) {
  if (fabric.world_size() == 1) return;
  const bool is_other = fabric.global_rank() == 1;
  const auto refused = [&](const ls::OptimizerFactory& factory, const std::string& setting) {
    require_error([&] { fabric.setup(Net(), factory); }, "optimizers differ");
    require_error([&] { fabric.setup(Net(), factory); }, setting);
  };
  refused(ls::SGD{.lr = is_other ? 0.2 : 0.1}, "lr 0.2");
  refused(ls::AdamW{.weight_decay = is_other ? 0.5 : 0.0}, "weight_decay 0.5");
  refused(is_other ? ls::OptimizerFactory(ls::Adam{}) : ls::OptimizerFactory(ls::AdamW{}), "Adam on rank 1");
}

// Under a strategy that shards, what is built there has no memory until it is set up.
void deferred_models(ls::Fabric& fabric) {
  torch::manual_seed(4);
  const torch::nn::Linear expected(64, 64);
  const auto next = torch::randn({3});
  torch::manual_seed(4);
  torch::nn::Linear linear{nullptr};
  {
    const auto scope = fabric.init_module();
    linear = torch::nn::Linear(64, 64);
  }
  require(torch::equal(torch::randn({3}), next), "the generator is left as ever");
  require(ls::is_deferred(linear->weight) == (fabric.strategy().name() == "fsdp"), "deferred in shards only");
  fabric.setup(linear);
  require(torch::equal(linear->weight.detach().clone(), expected->weight), "the same weights");
}

// A model that nobody owns any more does not stand in the way of the next one.
void models_come_and_go(ls::Fabric& fabric) {
  for (int fold = 0; fold < 3; ++fold) {
    auto [model, optimizer] = fabric.setup(net_of(fold), ls::SGD{.lr = 0.1});
    for (int step = 0; step < 2; ++step) {
      optimizer->zero_grad();
      fabric.backward(model->forward(rows_of_rank(fabric, all_rows(fabric))).pow(2).mean());
      optimizer->step();
    }
    require_equal_on_all_ranks(fabric, flat_weights(*model));
  }
}

// A failure that all ranks meet alike, in forward or in backward, leaves nothing behind.
void going_on_after_errors(ls::Fabric& fabric) {
  auto [model, optimizer] = fabric.setup(net_of(3), ls::SGD{.lr = 0.1});
  auto reference = net_of(3);
  const auto rows = all_rows(fabric);
  for (int step = 0; step < 6; ++step) {
    optimizer->zero_grad();
    const auto hidden = model->net[0]->as<nn::Linear>()->forward(rows_of_rank(fabric, rows));
    const auto loss = model->net[2]->as<nn::Linear>()->forward(torch::tanh(hidden)).pow(2).mean();
    if (step % 2 == 1) {
      // At its very start, and after gradients of the last layer have come.
      (step == 1 ? loss : hidden).register_hook([](const torch::Tensor&) -> torch::Tensor {
        throw std::runtime_error("scripted");
      });
      require_error([&] { fabric.backward(loss); }, "scripted");
      continue;
    }
    fabric.backward(loss);
    optimizer->step();
    reference->zero_grad();
    reference->forward(rows).pow(2).mean().backward();
    const torch::NoGradGuard no_grad;
    for (auto& parameter : reference->parameters()) parameter.sub_(0.1 * parameter.grad());
  }
  require(torch::allclose(flat_weights(*model), flat_weights(*reference), 1e-4, 1e-6),
          "as if nothing had been");
}

}  // namespace fabric_case
