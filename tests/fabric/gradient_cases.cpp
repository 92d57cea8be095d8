// Gradients of one model: averages, clipping, accumulation.
#include <limits>

#include "cases.h"

namespace fabric_case {

void equals_one_process(ls::Fabric& fabric) {
  auto [model, optimizer] = fabric.setup(net_of(3), ls::AdamW{.lr = 0.01});
  auto reference = net_of(3);
  torch::optim::AdamW reference_optimizer(reference->parameters(), torch::optim::AdamWOptions(0.01));
  const auto rows = all_rows(fabric);
  for (int step = 0; step < 5; ++step) {
    optimizer->zero_grad();
    fabric.backward(model->forward(rows_of_rank(fabric, rows)).pow(2).mean());
    const auto norm = fabric.clip_gradients(model, optimizer, {.max_norm = 0.1});
    optimizer->step();

    reference_optimizer.zero_grad();
    reference->forward(rows).pow(2).mean().backward();
    const auto reference_norm = nn::utils::clip_grad_norm_(reference->parameters(), 0.1);
    reference_optimizer.step();
    require(std::abs(*norm - reference_norm) < 1e-4 * reference_norm, "the norm of the global batch");
  }
  require(torch::allclose(flat_weights(*model), flat_weights(*reference), 1e-4, 1e-6), "weights");
  require_equal_on_all_ranks(fabric, flat_weights(*model));
}

void clipping(ls::Fabric& fabric) {
  auto [model, optimizer] = fabric.setup(net_of(3), ls::SGD{});
  const auto rows = all_rows(fabric);
  const auto backward = [&, &model = model, &optimizer = optimizer] {
    optimizer->zero_grad();
    fabric.backward(model->forward(rows).pow(2).mean());
    return flat_gradients(*model);
  };
  const auto gradients = backward();
  for (const double p : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    backward();
    const auto norm = fabric.clip_gradients(model, optimizer, {.max_norm = 0.01, .norm_type = p});
    const auto expected = gradients.to(torch::kDouble).norm(p).item<double>();
    require(std::abs(*norm - expected) < 1e-6 * expected, "norm " + std::to_string(p));
    require(torch::allclose(flat_gradients(*model), gradients * (0.01 / expected), 1e-3), "scaled");
  }
  backward();
  require(!fabric.clip_gradients(model, optimizer, {.clip_val = 0.01}).has_value(), "no norm for values");
  require(torch::equal(flat_gradients(*model), gradients.clamp(-0.01, 0.01)), "clamped");
  require_error([&, &model = model, &optimizer = optimizer] { fabric.clip_gradients(model, optimizer, {}); },
                "exactly one");
  optimizer->parameters()[0].tensor.grad().fill_(std::numeric_limits<float>::quiet_NaN());
  const auto clip = [&, &model = model, &optimizer = optimizer](bool strict) {
    fabric.clip_gradients(model, optimizer, {.max_norm = 1.0, .error_if_nonfinite = strict});
  };
  require_error([&] { clip(true); }, "not finite");
  clip(false);
}

void accumulation(ls::Fabric& fabric) {
  auto [model, optimizer] = fabric.setup(net_of(3), ls::SGD{.lr = 0.1});
  auto reference = net_of(3);
  const auto rows = all_rows(fabric);
  const auto own = rows_of_rank(fabric, rows).chunk(3);
  const auto& comm = fabric.strategy().communicator();
  const auto backward = [&, &model = model](std::size_t part) {
    fabric.backward(model->forward(own[part]).pow(2).mean() / 3.0);
  };
  backward(0);  // the first averaged backward agrees on buckets: that is sent, too
  optimizer->zero_grad();
  backward(0);
  optimizer->zero_grad();
  for (std::size_t part = 0; part < 3; ++part) {
    const auto sent = comm.bytes_sent();
    const auto scope = fabric.no_backward_sync(model, part < 2);
    backward(part);
    require(fabric.world_size() == 1 || (comm.bytes_sent() == sent) == (part < 2),
            "bytes of part " + std::to_string(part));
  }
  reference->forward(rows).pow(2).mean().backward();
  require(torch::allclose(flat_gradients(*model), flat_gradients(*reference), 1e-4, 1e-6),
          "the mean of the sums");
  require_equal_on_all_ranks(fabric, flat_gradients(*model));
  require_error([&] { auto scope = fabric.no_backward_sync(Net()); }, "not set up");
}

void precision(ls::Fabric& launched) {
  ls::Fabric fabric({.precision = ls::Bf16Mixed{}});
  fabric.launch();
  require(fabric.precision().name() == "bf16-mixed" && launched.precision().name() == "32-true", "names");
  auto [model, optimizer] = fabric.setup(net_of(3), ls::SGD{.lr = 0.1});
  const auto rows = all_rows(fabric);
  torch::Tensor output;
  {
    const auto scope = fabric.autocast();
    output = model->forward(rows);
  }
  require(output.scalar_type() == torch::kBFloat16, "forward in bfloat16");
  require(model->forward(rows).scalar_type() == torch::kFloat, "only within the scope");
  fabric.backward(output.to(torch::kFloat).pow(2).mean());
  require(flat_gradients(*model).scalar_type() == torch::kFloat, "gradients in float32");
  optimizer->step();
  require_equal_on_all_ranks(fabric, flat_weights(*model));
}

}  // namespace fabric_case
