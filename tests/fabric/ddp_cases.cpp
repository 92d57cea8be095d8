// Ddp as Fabric's users meet it: several models, models that change, losses that miss, compression.
#include "cases.h"

namespace fabric_case {

namespace {

ls::Fabric fabric_with(const ls::Ddp& options) {
  ls::Fabric fabric({.strategy = options});
  fabric.launch();
  return fabric;
}

nn::Linear layer_of(int inputs, int outputs) {
  torch::manual_seed(1);
  return nn::Linear(nn::LinearOptions(inputs, outputs).bias(false));
}

float first_gradient(const nn::Linear& layer) { return layer->weight.grad().flatten()[0].item<float>(); }

double mean_of_ranks(const ls::Fabric& fabric) { return (fabric.world_size() + 1) / 2.0; }

torch::Tensor own_input(const ls::Fabric& fabric, int columns) {
  return torch::full({1, columns}, fabric.global_rank() + 1.0);
}

}  // namespace

// Every rank evaluates its two equal towers in an order of its own.
void towers(ls::Fabric& fabric) {
  auto [query, query_optimizer] = fabric.setup(layer_of(4, 4), ls::SGD{});
  auto [key, key_optimizer] = fabric.setup(layer_of(4, 4), ls::SGD{});
  const auto input = own_input(fabric, 4);
  for (int step = 0; step < 4; ++step) {
    torch::Tensor of_query, of_key;
    if ((fabric.global_rank() + step) % 2 == 0) of_query = query->forward(input).sum();
    of_key = key->forward(input).sum();
    if (!of_query.defined()) of_query = query->forward(input).sum();
    step < 2 ? fabric.backward(of_query + 10 * of_key) : fabric.backward(of_query + 10 * of_key, key, query);
    require(std::abs(first_gradient(query) - mean_of_ranks(fabric)) < 1e-5, "the query's own gradients");
    require(std::abs(first_gradient(key) - 10 * mean_of_ranks(fabric)) < 1e-4, "the key's own gradients");
    query_optimizer->zero_grad();
    key_optimizer->zero_grad();
  }
}

// A model that changes is named; released before, it may change and go on with its optimizer.
void changed_models(ls::Fabric& fabric) {
  const auto input = own_input(fabric, 3);
  const auto freeze = [](nn::Sequential& model, bool frozen) {
    model->parameters()[0].set_requires_grad(!frozen);
  };
  for (const bool finds : {false, true}) {
    auto own = fabric_with({.find_unused_parameters = finds});
    auto [model, optimizer] =
        own.setup(nn::Sequential(layer_of(3, 3), layer_of(3, 2)), ls::SGD{.momentum = 0.9});
    const auto step = [&, &model = model, &optimizer = optimizer] {
      own.backward(model->forward(input).sum());
      optimizer->step();
      optimizer->zero_grad();
    };
    step();
    freeze(model, true);
    if (finds) {
      step();
      const auto loss = model->forward(input).sum();
      loss.register_hook([](const torch::Tensor&) { throw std::runtime_error("a bad batch"); });
      require_error([&] { own.backward(loss); }, "a bad batch");
    } else {
      require_error(step, "Fabric::release");
    }
    freeze(model, false);
    optimizer->zero_grad();
    step();
    require_equal_on_all_ranks(own, flat_weights(*model));
  }

  auto [model, optimizer] = fabric.setup(nn::Sequential(layer_of(3, 3), layer_of(3, 2)), ls::SGD{.lr = 0.1});
  fabric.backward(model->forward(input).sum());
  optimizer->step();
  model->to(torch::kBFloat16);
  model->to(torch::kFloat);
  require_error([&, &model = model] { fabric.backward(model->forward(input).sum()); }, "converted");
  fabric.release(model);
  require_error([&, &model = model] { fabric.release(model); }, "not set up");
  require_error([&, &model = model] { fabric.backward(model->forward(input).sum(), model); }, "not set up");
  freeze(model, true);
  require(fabric.setup(model).ptr() == model.ptr(), "set up again");
  optimizer->zero_grad();
  const auto frozen = model->parameters()[0].clone();
  fabric.backward(model->forward(input).sum());
  optimizer->step();
  require(torch::equal(frozen, model->parameters()[0]), "a frozen layer stays");
  require_equal_on_all_ranks(fabric, flat_weights(*model));
}

// Buffers follow rank 0's once per averaged backward, whichever optimizer steps first.
void several_optimizers(ls::Fabric& fabric) {
  auto [model, first, second] = fabric.setup(nn::BatchNorm1d(2), ls::SGD{}, ls::SGD{});
  const auto& comm = fabric.strategy().communicator();
  for (int step = 0; step < 2; ++step) {
    fabric.backward(model->forward(torch::randn({4, 2}) * (fabric.global_rank() + 1)).sum());
    const auto before = comm.bytes_sent();
    (step == 0 ? first : second)->step();
    const auto after = comm.bytes_sent();
    (step == 0 ? second : first)->step();
    if (fabric.is_global_zero()) require((before == after) == (fabric.world_size() == 1), "buffers are sent");
    require(comm.bytes_sent() == after, "and only once");
    require_equal_on_all_ranks(fabric, model->running_var);
  }
}

// A loss that has nothing to do with a model, on all ranks or on some.
void lost_losses(ls::Fabric& fabric) {
  const auto other = torch::ones({2}, torch::requires_grad());
  auto model = fabric.setup(layer_of(3, 2));
  const auto& comm = fabric.strategy().communicator();
  if (fabric.world_size() > 1) {
    require_error([&] { fabric.backward(other.sum()); }, "no parameter");
    const auto sent = comm.bytes_sent();
    const auto scope = fabric.no_backward_sync(model);
    fabric.backward(model->forward(own_input(fabric, 3)).sum());
    require(comm.bytes_sent() == sent, "nothing is sent under no_backward_sync()");
    model->zero_grad();
  }
  fabric.backward(model->forward(own_input(fabric, 3)).sum());
  require(std::abs(first_gradient(model) - mean_of_ranks(fabric)) < 1e-6, "averaged afterwards");

  auto finding = fabric_with({.find_unused_parameters = true});
  auto detector = finding.setup(layer_of(3, 2));
  const bool has_objects = finding.global_rank() == 0;
  for (int step = 0; step < 3; ++step) {
    finding.backward(has_objects ? detector->forward(torch::ones({1, 3})).sum() : (other * 2).sum());
    require(std::abs(first_gradient(detector) - 1.0 / finding.world_size()) < 1e-6,
            "zeros of other ranks count");
    detector->zero_grad();
  }
}

// PowerSGD in every wrapper, and training that goes on from the strategy's state as if it had not stopped.
void compression(ls::Fabric& launched) {
  const auto rows = rows_of_rank(launched, all_rows(launched, 20));
  for (const auto wrapper :
       {ls::DdpCommWrapper::kNone, ls::DdpCommWrapper::kFp16Compress, ls::DdpCommWrapper::kBf16Compress}) {
    const ls::Ddp options{.ddp_comm_hook = ls::DdpCommHook::kPowerSgd,
                          .ddp_comm_wrapper = wrapper,
                          .ddp_comm_state = {.start_powerSGD_iter = 2}};
    const auto train = [&](ls::Fabric& fabric, nn::Linear& model, int steps) {
      for (; steps > 0; --steps) {
        model->zero_grad();
        fabric.backward(model->forward(rows).pow(2).mean());
        const torch::NoGradGuard no_grad;
        model->weight.sub_(0.1 * model->weight.grad());
      }
    };
    auto fabric = fabric_with(options), other = fabric_with(options);
    auto model = fabric.setup(layer_of(20, 30));
    train(fabric, model, 5);
    const auto state = fabric.strategy().state().clone();
    auto copy = layer_of(20, 30);
    {
      const torch::NoGradGuard no_grad;
      copy->weight.copy_(model->weight);
    }
    train(fabric, model, 3);
    other.setup(copy);
    other.strategy().load_state(state);
    train(other, copy, 3);
    require(torch::equal(copy->weight, model->weight), "the same bits as without the stop");
    require_equal_on_all_ranks(fabric, flat_weights(*model));
  }
  require(launched.strategy().state().empty(), "nothing to keep without compression");
}

}  // namespace fabric_case
