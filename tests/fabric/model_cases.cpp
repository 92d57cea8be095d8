// Several models under one Fabric.
#include "cases.h"

namespace fabric_case {

namespace {

// A small GAN: the discriminator learns from real and generated rows, the generator through it.
struct Gan {
  Net generator{nullptr}, discriminator{nullptr};
  explicit Gan(std::uint64_t seed) {
    torch::manual_seed(seed);
    generator = Net(3, 4);
    discriminator = Net(4, 1);
  }
  torch::Tensor discriminator_loss(const torch::Tensor& real, const torch::Tensor& noise) {
    const auto fake = generator->forward(noise).detach();
    return F::softplus(-discriminator->forward(real)).mean() +
           F::softplus(discriminator->forward(fake)).mean();
  }
  torch::Tensor generator_loss(const torch::Tensor& noise) {
    return F::softplus(-discriminator->forward(generator->forward(noise))).mean();
  }
  torch::Tensor weights() { return torch::cat({flat_weights(*generator), flat_weights(*discriminator)}); }
};

torch::Tensor train_gan(ls::Fabric& fabric, bool name_models) {
  Gan gan(11);
  auto [generator, g_optimizer] = fabric.setup(gan.generator, ls::Adam{.lr = 0.01});
  auto [discriminator, d_optimizer] = fabric.setup(gan.discriminator, ls::SGD{.lr = 0.1});
  const auto real = rows_of_rank(fabric, all_rows(fabric, 4)),
             noise = rows_of_rank(fabric, all_rows(fabric, 3));
  for (int step = 0; step < 5; ++step) {
    d_optimizer->zero_grad();
    const auto d_loss = gan.discriminator_loss(real, noise);
    name_models ? fabric.backward(d_loss, discriminator) : fabric.backward(d_loss);
    d_optimizer->step();
    g_optimizer->zero_grad();
    const auto g_loss = gan.generator_loss(noise);
    name_models ? fabric.backward(g_loss, generator) : fabric.backward(g_loss);
    g_optimizer->step();
  }
  return gan.weights();
}

torch::Tensor train_gan_alone(const ls::Fabric& fabric) {
  Gan gan(11);
  torch::optim::Adam g_optimizer(gan.generator->parameters(), 0.01);
  torch::optim::SGD d_optimizer(gan.discriminator->parameters(), 0.1);
  const auto real = all_rows(fabric, 4), noise = all_rows(fabric, 3);
  for (int step = 0; step < 5; ++step) {
    d_optimizer.zero_grad();
    gan.discriminator_loss(real, noise).backward();
    d_optimizer.step();
    g_optimizer.zero_grad();
    gan.generator_loss(noise).backward();
    g_optimizer.step();
  }
  return gan.weights();
}

// A function with a graph of its own, as a checkpoint has: backward runs within backward.
struct Hidden : torch::autograd::Function<Hidden> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input,
                               NetImpl* net) {
    context->saved_data["net"] = reinterpret_cast<std::int64_t>(net);
    context->save_for_backward({input});
    return net->forward(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const torch::AutoGradMode with_gradients(true);
    auto* const net = reinterpret_cast<NetImpl*>(context->saved_data["net"].toInt());
    const auto input = context->get_saved_variables()[0].detach().requires_grad_();
    net->forward(input).backward(gradients[0]);
    return {input.grad(), {}};
  }
};

}  // namespace

void gan(ls::Fabric& fabric) {
  const auto found = train_gan(fabric, /*name_models=*/false);
  require_equal_on_all_ranks(fabric, found);
  require(torch::equal(found, train_gan(fabric, /*name_models=*/true)), "named or found: the same");
  require(torch::allclose(found, train_gan_alone(fabric), 1e-3, 1e-5), "one process on all rows");
}

void several_models(ls::Fabric& fabric) {
  auto first = fabric.setup(net_of(1)), second = fabric.setup(Net(1, 1));
  const auto rows = rows_of_rank(fabric, all_rows(fabric));
  require_error([&] { fabric.backward(torch::ones({1}, torch::requires_grad())); }, "no model to train");
  require_error([&] { fabric.backward(torch::ones({1})); }, "no parameter");
  require_error([&] { fabric.backward(first->forward(rows)); }, "6 elements");
  require_error([&] { fabric.backward(first->forward(rows).sum(), Net()); }, "not set up");

  fabric.backward(first->forward(rows), {.gradient = torch::ones({6, 1})});
  require_equal_on_all_ranks(fabric, flat_gradients(*first));

  const auto loss = [&] {
    return second->forward(Hidden::apply(rows.clone().requires_grad_(), first.get())).sum();
  };
  require_error([&] { fabric.backward(loss()); }, "name the models");
  for (auto* model : {first.get(), second.get()}) model->zero_grad();
  fabric.backward(loss(), first, second);
  require_equal_on_all_ranks(fabric, flat_gradients(*first));
  const auto twice = second->forward(first->forward(rows)).sum();
  fabric.backward(twice, {.retain_graph = true});
  fabric.backward(twice, {}, first, second);
  require_equal_on_all_ranks(fabric, flat_gradients(*second));
}

}  // namespace fabric_case
