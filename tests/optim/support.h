// A small set of parameters with reproducible gradients.
#pragma once

#include <lockstep/optim/optimizer.h>
#include <lockstep/torch.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::optim_test {

using Model = std::vector<torch::Tensor>;

// Parameters of 5x7, 13 and 2x3x4 elements; the same values at every call.
inline Model model(at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(7);
  Model parameters;
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{5, 7}, {13}, {2, 3, 4}}) {
    parameters.push_back(torch::randn(sizes).to(dtype).requires_grad_());
  }
  return parameters;
}

inline std::vector<NamedParameter> parameters_of(const Model& model) {
  std::vector<NamedParameter> named;
  for (const auto& tensor : model) named.push_back({"p" + std::to_string(named.size()), tensor});
  return named;
}

inline void set_gradients(Model& model, int step) {
  torch::manual_seed(static_cast<std::uint64_t>(100 + step));
  for (auto& parameter : model)
    parameter.mutable_grad() = torch::randn(parameter.sizes()).to(parameter.dtype());
}

inline torch::Tensor state_of(Optimizer& optimizer, const std::string& parameter, const std::string& kind) {
  for (const auto& entry : optimizer.state()) {
    if (entry.parameter == parameter && entry.kind == kind) return entry.tensor;
  }
  throw std::runtime_error("no " + kind + " of " + parameter);
}

// What `act` throws, or an empty text.
template <class Error, class Act>
std::string error_of(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::optim_test
