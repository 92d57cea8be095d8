// Precisions in loops of one's own: scaled gradients, models in one element type.
#include <limits>

#include "cases.h"

namespace fabric_case {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

ls::Fabric launched_with(const ls::PrecisionOptions& precision) {
  ls::Fabric fabric({.precision = precision});
  fabric.launch();
  return fabric;
}

torch::Tensor half_loss(const ls::Fabric& fabric, Net& model, const torch::Tensor& rows) {
  const auto scope = fabric.autocast();
  const auto outputs = model->forward(rows);
  require(outputs.scalar_type() == torch::kHalf, "forward in float16");
  return outputs.to(torch::kFloat).pow(2).mean();
}

double scale_of(const ls::Fabric& fabric) { return fabric.precision().grad_scaler()->get_scale(); }

// Two optimizers that step together: the scale, which grows each time, must not change between their steps.
torch::Tensor train_two(const ls::GradScalerOptions& scaler) {
  auto fabric = launched_with(ls::Fp16Mixed{.scaler = scaler});
  auto [first, first_optimizer] = fabric.setup(net_of(3), ls::SGD{.lr = 0.1});
  auto [second, second_optimizer] = fabric.setup(net_of(4), ls::SGD{.lr = 0.1});
  const auto rows = rows_of_rank(fabric, all_rows(fabric));
  for (int step = 0; step < 4; ++step) {
    first_optimizer->zero_grad();
    second_optimizer->zero_grad();
    fabric.backward(half_loss(fabric, first, rows));
    fabric.backward(half_loss(fabric, second, rows));
    fabric.clip_gradients(second, second_optimizer, {.max_norm = 0.5});
    first_optimizer->step();
    second_optimizer->step();
  }
  require_equal_on_all_ranks(fabric, flat_weights(*second));
  return torch::cat({flat_weights(*first), flat_weights(*second)});
}

}  // namespace

void scaled_gradients(ls::Fabric&) {
  auto fabric = launched_with(ls::Fp16Mixed{.scaler = {.init_scale = 1024}});
  auto plain = launched_with({});
  auto [model, optimizer] = fabric.setup(net_of(3), ls::SGD{.lr = 0.1});
  auto reference = plain.setup(net_of(3));
  const auto rows = rows_of_rank(fabric, all_rows(fabric));
  plain.backward(reference->forward(rows).pow(2).mean());
  const auto expected = flat_gradients(*reference);

  fabric.backward(half_loss(fabric, model, rows));
  require(torch::allclose(flat_gradients(*model), 1024 * expected, 1e-2, 1e-1), "scaled");
  const auto norm = fabric.clip_gradients(model, optimizer, {.max_norm = 1e9});
  require(torch::allclose(flat_gradients(*model), expected, 1e-2, 1e-4), "unscaled");
  require(std::abs(*norm - expected.norm().item<double>()) < 1e-2 * *norm, "the norm of what was unscaled");
  fabric.clip_gradients(model, optimizer, {.clip_val = 1e9});
  require(torch::allclose(flat_gradients(*model), expected, 1e-2, 1e-4), "unscaled once");
  require(optimizer->step(), "taken");
  const auto weights = flat_weights(*model);
  require(torch::allclose(weights, flat_weights(*reference) - 0.1 * expected, 1e-3, 1e-4), "weights");
  require_equal_on_all_ranks(fabric, weights);
}

void overflows(ls::Fabric&) {
  auto fabric = launched_with(ls::Fp16Mixed{.scaler = {.init_scale = 1024}});
  auto [model, optimizer] = fabric.setup(net_of(3), ls::SGD{.lr = 0.1});
  const auto rows = rows_of_rank(fabric, all_rows(fabric));
  const auto weights = flat_weights(*model).clone();
  const auto loss = half_loss(fabric, model, rows);
  const bool is_last = fabric.global_rank() + 1 == fabric.world_size();
  fabric.backward(is_last ? loss * kInf : loss);
  const auto norm = fabric.clip_gradients(model, optimizer, {.max_norm = 1});
  require(!std::isfinite(*norm), "a norm that is no error");
  require(!optimizer->step(), "left out on every rank");
  require(torch::equal(flat_weights(*model), weights), "weights");

  optimizer->zero_grad();
  fabric.backward(half_loss(fabric, model, rows));
  require(scale_of(fabric) == 512, "backed off");
  fabric.clip_gradients(model, optimizer, {.max_norm = 1});
  optimizer->zero_grad();  // thrown away
  fabric.backward(half_loss(fabric, model, rows));
  const auto scaled = flat_gradients(*model).norm().item<double>();
  const auto unscaled = fabric.clip_gradients(model, optimizer, {.max_norm = 1e9});
  require(std::abs(scaled - 512 * *unscaled) < 1e-2 * scaled, "unscaled anew");
  require(optimizer->step(), "taken");
}

// The last element of the gradient, which one rank has.
void overflow_in_one_shard(ls::Fabric&) {
  ls::Fabric fabric({.strategy = ls::Fsdp{}, .precision = ls::Fp16Mixed{.scaler = {.init_scale = 1024}}});
  fabric.launch();
  fabric.seed_everything(5);
  torch::nn::Linear model(torch::nn::LinearOptions(64, 64).bias(false));
  const auto optimizer = std::get<1>(fabric.setup(model, ls::SGD{.lr = 0.1}));
  const auto weights = [&] {
    const auto state = fabric.strategy().module_state(*model);
    return fabric.global_rank() == 0 ? state.at("weight").clone() : torch::Tensor();
  };
  const auto before = weights();
  auto factors = torch::ones({64});
  factors[63] = kInf;
  {
    const auto scope = fabric.autocast();
    fabric.backward((model->forward(torch::eye(64)).to(torch::kFloat)[63] * factors).sum());
  }
  require(!optimizer->step(), "left out on every rank");
  const auto after = weights();
  require(fabric.global_rank() > 0 || torch::equal(after, before), "weights");
}

// Whether gradients are whole or in shards: a loss was scaled, but no gradient is there.
void no_gradients(ls::Fabric&) {
  for (const auto& strategy : std::vector<ls::StrategyOptions>{ls::Ddp{}, ls::Fsdp{}}) {
    ls::Fabric fabric({.strategy = strategy, .precision = ls::Fp16Mixed{.scaler = {.init_scale = 1024}}});
    fabric.launch();
    auto [model, optimizer] = fabric.setup(net_of(3), ls::SGD{.lr = 0.1});
    const auto rows = rows_of_rank(fabric, all_rows(fabric));
    fabric.backward(half_loss(fabric, model, rows));
    optimizer->zero_grad();
    fabric.clip_gradients(model, optimizer, {.max_norm = 1});
    require_error([&, &optimizer = optimizer] { optimizer->step(); }, "found no gradient to check");
    optimizer->zero_grad();
    fabric.backward(half_loss(fabric, model, rows));
    require(optimizer->step(), "taken");
  }
}

void scaled_together(ls::Fabric&) {
  const auto scaled = train_two({.init_scale = 4, .growth_interval = 1});
  require(torch::allclose(scaled, train_two({.enabled = false}), 1e-2, 1e-3), "weights of both models");
}

void scaler_state(ls::Fabric&) {
  auto fabric = launched_with(ls::Fp16Mixed{.scaler = {.init_scale = 4, .growth_interval = 1}});
  auto [model, optimizer] = fabric.setup(net_of(3), ls::SGD{.lr = 0.1});
  fabric.backward(half_loss(fabric, model, rows_of_rank(fabric, all_rows(fabric))));
  optimizer->step();
  fabric.save("whole.ckpt", {{"model", model}, {"optimizer", optimizer}});
  fabric.save("model.ckpt", {{"model", model}});
  require(scale_of(fabric) == 8, "grown");

  auto other = launched_with(ls::Fp16Mixed{});
  auto [same, its_optimizer] = other.setup(net_of(3), ls::SGD{.lr = 0.1});
  require(other.load("model.ckpt", {{"model", same}}).empty(), "the model alone");
  require(scale_of(other) == 65536, "a scale of its own");
  require(other.load("whole.ckpt", {{"model", same}, {"optimizer", its_optimizer}}).empty(), "all of it");
  require(scale_of(other) == 8, "the scale that was saved");
  require(launched_with({}).load("whole.ckpt").contains("MixedPrecision"), "what is left to a program");
}

void one_element_type(ls::Fabric&) {
  for (const auto& [options, dtype] : std::initializer_list<std::pair<ls::PrecisionOptions, torch::Dtype>>{
           {ls::Fp64{}, torch::kDouble},
           {ls::Fp16True{}, torch::kHalf},
           {ls::Bf16True{}, torch::kBFloat16}}) {
    auto fabric = launched_with(options);
    {
      const auto scope = fabric.init_module();
      require(Net()->parameters()[0].scalar_type() == dtype, "made in the type");
    }
    auto [model, optimizer] = fabric.setup(net_of(3), ls::AdamW{.lr = 0.01});
    const auto start = flat_weights(*model).clone();
    auto batches = fabric.setup_loader(ls::loader(ls::tensor_dataset(all_rows(fabric)), {.batch_size = 3}));
    for (const auto& batch : batches) {
      optimizer->zero_grad();
      const auto scope = fabric.autocast();
      require(torch::zeros({1}).scalar_type() == dtype, "new tensors");
      fabric.backward(model->forward(batch.data).pow(2).mean());
      fabric.clip_gradients(model, optimizer, {.max_norm = 1.0});
      require(optimizer->step(), "taken");
    }
    require(torch::zeros({1}).scalar_type() == torch::kFloat, "the default again");
    require(flat_weights(*model).scalar_type() == dtype, "weights");
    require(!torch::equal(flat_weights(*model), start), "trained");
    require_equal_on_all_ranks(fabric, flat_weights(*model));
  }
}

}  // namespace fabric_case
