// torch.optim's and DeepSpeed's optimizers, from golden_optimizers.json, against ours.
#include <gtest/gtest.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/paths.h"

namespace lockstep {
namespace {

// Names, shapes, values and steps as in make_golden_optimizers.py.
constexpr int kGoldenSteps = 6;

torch::Tensor golden_values(at::IntArrayRef shape, std::int64_t seed) {
  auto tensor = torch::empty(shape);
  for (std::int64_t i = 0; i < tensor.numel(); ++i)
    tensor.data_ptr<float>()[i] = static_cast<float>(2 * ((i * 37 + seed * 101) % 97) - 97) / 128;
  return tensor;
}

std::vector<NamedParameter> golden_parameters() {
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes{{"hidden.weight", {6, 4}},
                                                                              {"wide.weight", {3, 8}},
                                                                              {"embed.weight", {5, 3}},
                                                                              {"conv.weight", {2, 3, 4}},
                                                                              {"hidden.bias", {13}}};
  std::vector<NamedParameter> parameters;
  for (const auto& [name, shape] : shapes)
    parameters.push_back({name, golden_values(shape, std::ssize(parameters)).requires_grad_()});
  return parameters;
}

std::vector<NamedParameter> trained_as_golden(const OptimizerFactory& factory) {
  auto parameters = golden_parameters();
  const auto optimizer = factory.create(parameters);
  for (int step = 0; step < kGoldenSteps; ++step) {
    std::int64_t seed = 10 + 7 * step;
    for (auto& [name, tensor] : parameters) tensor.mutable_grad() = golden_values(tensor.sizes(), seed++);
    optimizer->step();
  }
  return parameters;
}

torch::Tensor golden_end(const std::string& name, const torch::Tensor& like, const std::string& of) {
  static const auto golden = [] {
    std::ifstream file(test::in_repository("tests/optim/golden_optimizers.json"));
    return nlohmann::json::parse(file);
  }();
  return torch::tensor(golden.at(name).at(of).get<std::vector<double>>()).view(like.sizes());
}

// `of_matrices` is the tolerance for what Muon orthogonalizes, in bfloat16.
void expect_golden(const std::string& name, const OptimizerFactory& factory, double of_matrices = 2e-6) {
  const auto start = golden_parameters();
  const auto end = trained_as_golden(factory);
  for (std::size_t i = 0; i < end.size(); ++i) {
    const auto& [parameter, tensor] = end[i];
    const bool is_matrix = parameter == "hidden.weight" || parameter == "wide.weight";
    const double tolerance = is_matrix ? of_matrices : 2e-6;
    const auto difference = (tensor - golden_end(name, tensor, parameter)).abs().max().item<double>();
    EXPECT_LT(difference, tolerance) << name << " " << parameter;
    const auto way = (tensor - start[i].tensor).abs().max().item<double>();
    EXPECT_GT(way, 5 * tolerance) << name << " " << parameter;
  }
}

TEST(GoldenOptimizers, AdamWithoutBiasCorrection) {
  expect_golden("adam_uncorrected",
                Adam{.lr = 0.02, .betas = {0.8, 0.95}, .weight_decay = 0.1, .bias_correction = false});
  expect_golden(
      "adamw_uncorrected",
      AdamW{.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-3, .weight_decay = 0.1, .bias_correction = false});
}

TEST(GoldenOptimizers, Adagrad) {
  expect_golden("adagrad", Adagrad{});
  expect_golden("adagrad_options", Adagrad{.lr = 0.1,
                                           .lr_decay = 0.2,
                                           .weight_decay = 0.1,
                                           .initial_accumulator_value = 0.5,
                                           .eps = 1e-3,
                                           .maximize = true});
}

TEST(GoldenOptimizers, Lion) {
  expect_golden("lion", Lion{});
  expect_golden("lion_options", Lion{.lr = 0.02, .betas = {0.8, 0.95}, .weight_decay = 0.1});
}

TEST(GoldenOptimizers, Lamb) {
  expect_golden("lamb", Lamb{});
  expect_golden("lamb_options", Lamb{.lr = 0.05,
                                     .betas = {0.8, 0.95},
                                     .eps = 0.01,
                                     .weight_decay = 0.1,
                                     .bias_correction = false,
                                     .eps_inside_sqrt = true});
  expect_golden("lamb_bounds", Lamb{.lr = 0.05, .max_coeff = 0.5, .min_coeff = 0.4});
}

TEST(GoldenOptimizers, Muon) {
  expect_golden("muon", Muon{}, 1e-4);
  expect_golden("muon_options",
                Muon{.lr = 0.05,
                     .weight_decay = 0.2,
                     .momentum = 0.8,
                     .nesterov = false,
                     .ns_coefficients = {3.0, -3.2, 1.2},
                     .ns_steps = 3,
                     .adjust_lr_fn = "match_rms_adamw",
                     .adam_lr = 0.01,
                     .adam_betas = {0.8, 0.9},
                     .adam_eps = 1e-3},
                2e-3);
}

}  // namespace
}  // namespace lockstep
