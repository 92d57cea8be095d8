// One step of AdamW: ours, at::_fused_adamw_, torch::optim::AdamW, and a pass over the memory
// of a step.
//
// And the same with parameters in bfloat16 or float16 beside them, written by the step (TYPE_along) or copied
// behind it (TYPE_after).
//
// Usage: bench_adamw RESULTS. A case is MODEL/VARIANT. One more peer is peers/cpu_adam.py.
#include <lockstep/lockstep.h>

#include <string>
#include <vector>

#include "optim/pieces.h"

#include "results.h"

namespace {

namespace ls = lockstep;

struct Model {
  const char* name;
  int tensors;
  std::int64_t rows, columns;
  int steps;
};
constexpr Model kModels[] = {{"10M", 10, 1000, 1000, 10}, {"tiny_100", 100, 16, 16, 300}};

std::vector<torch::Tensor> make_parameters(const Model& model) {
  std::vector<torch::Tensor> parameters;
  for (int index = 0; index < model.tensors; ++index) {
    parameters.push_back(torch::randn({model.rows, model.columns}, torch::requires_grad()));
    parameters.back().mutable_grad() = torch::randn({model.rows, model.columns});
  }
  return parameters;
}

template <class Step>
double ns_per_step(int steps, const Step& step) {
  for (int index = 0; index < 3; ++index) step();
  const auto start = bench::now_ns();
  for (int index = 0; index < steps; ++index) step();
  return static_cast<double>(bench::now_ns() - start) / steps;
}

double ours(const Model& model) {
  std::vector<ls::NamedParameter> named;
  for (auto& tensor : make_parameters(model)) named.push_back({std::to_string(named.size()), tensor});
  const auto optimizer = ls::OptimizerFactory(ls::AdamW{}).create(std::move(named));
  return ns_per_step(model.steps, [&] { optimizer->step(); });
}

double with_copies(const Model& model, at::ScalarType type, bool is_along) {
  const auto parameters = make_parameters(model);
  std::vector<ls::NamedParameter> named;
  std::vector<ls::detail::Piece> pieces;
  std::vector<torch::Tensor> copies, originals;
  for (const auto& tensor : parameters) {
    named.push_back({std::to_string(named.size()), tensor});
    originals.push_back(tensor.detach());
    copies.push_back(torch::zeros(tensor.sizes(), type));
    pieces.push_back(
        {.elements = tensor,
         .narrow = std::make_shared<ls::detail::NarrowCopy>(ls::detail::NarrowCopy{copies.back()})});
  }
  if (is_along) ls::detail::mark_pieces(pieces);
  const auto optimizer = ls::OptimizerFactory(ls::AdamW{}).create(std::move(named));
  return ns_per_step(model.steps, [&] {
    optimizer->step();
    if (is_along) return;
    for (std::size_t i = 0; i < copies.size(); ++i) copies[i].copy_(originals[i]);
  });
}

// The two functions that Python's torch.optim.AdamW(fused=True) calls, with nothing around them.
double fused(const Model& model) {
  const torch::NoGradGuard no_grad;
  auto parameters = make_parameters(model);
  std::vector<torch::Tensor> gradients, means, squares, steps;
  for (const auto& parameter : parameters) {
    gradients.push_back(parameter.grad());
    means.push_back(torch::zeros_like(parameter));
    squares.push_back(torch::zeros_like(parameter));
    steps.push_back(torch::ones({}));
  }
  return ns_per_step(model.steps, [&] {
    at::_fused_adamw_(parameters, gradients, means, squares, {}, steps, /*lr=*/1e-3, /*beta1=*/0.9,
                      /*beta2=*/0.999, /*weight_decay=*/1e-2, /*eps=*/1e-8, /*amsgrad=*/false,
                      /*maximize=*/false);
    at::_foreach_add_(steps, 1);
  });
}

double torch_optim(const Model& model) {
  torch::optim::AdamW optimizer(make_parameters(model), torch::optim::AdamWOptions(1e-3));
  return ns_per_step(model.steps, [&] { optimizer.step(); });
}

// Reads four numbers for each parameter and writes three, as a step of Adam does: 28 bytes.
#if defined(__x86_64__)
#define BENCH_FOR_EACH_ISA __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define BENCH_FOR_EACH_ISA
#endif
BENCH_FOR_EACH_ISA
void touch(float* __restrict parameter, const float* __restrict gradient, float* __restrict mean,
           float* __restrict square, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) {
    parameter[i] += gradient[i];
    mean[i] += gradient[i];
    square[i] += gradient[i];
  }
}

double memory_pass(const Model& model) {
  const torch::NoGradGuard no_grad;
  const auto gradients = make_parameters(model), parameters = make_parameters(model);
  const auto means = make_parameters(model), squares = make_parameters(model);
  return ns_per_step(model.steps, [&] {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      touch(parameters[i].data_ptr<float>(), gradients[i].data_ptr<float>(), means[i].data_ptr<float>(),
            squares[i].data_ptr<float>(), parameters[i].numel());
  });
}

}  // namespace

int main(int, char** argv) {
  const bench::Results results(argv[1]);
  torch::set_num_threads(1);
  for (const auto& model : kModels) {
    results.add(std::string(model.name) + "/ours", ours(model));
    results.add(std::string(model.name) + "/fused", fused(model));
    results.add(std::string(model.name) + "/torch_optim", torch_optim(model));
    results.add(std::string(model.name) + "/memory_pass", memory_pass(model));
    for (const auto& [type, name] : {std::pair(at::kBFloat16, "bfloat16"), std::pair(at::kHalf, "float16")}) {
      for (const bool is_along : {true, false})
        results.add(std::string(model.name) + "/" + name + (is_along ? "_along" : "_after"),
                    with_copies(model, type, is_along));
    }
  }
}
