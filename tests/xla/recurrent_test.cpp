// Recurrent layers on the device, with their derivatives, beside the same on the CPU: each time step is taken
// apart into operators that are lowered.
#include <gmock/gmock.h>

#include <torch/torch.h>

#include "xla/device_case.h"

namespace lockstep::xla {
namespace {

using namespace test;

constexpr std::int64_t kTimeSteps = 3, kBatch = 3, kInputs = 4, kHidden = 6;

// Weights of one layer in one direction.
Tensors weights(std::int64_t gates, std::int64_t inputs) {
  return {normal({gates * kHidden, inputs}) * 0.3, normal({gates * kHidden, kHidden}) * 0.3,
          normal({gates * kHidden}) * 0.3, normal({gates * kHidden}) * 0.3};
}

// The input, and the weights of two layers in two directions.
Tensors two_ways(std::int64_t gates) {
  Tensors tensors{normal({kTimeSteps, kBatch, kInputs})};
  for (const auto inputs : {kInputs, kInputs, 2 * kHidden, 2 * kHidden})
    for (auto& weight : weights(gates, inputs)) tensors.push_back(weight);
  return tensors;
}

Tensors weights_in(const Tensors& tensors) { return {tensors.begin() + 1, tensors.end()}; }

at::Tensor state(const at::Tensor& like, std::int64_t layers) {
  return at::zeros({layers, kBatch, kHidden}, like.options());
}

TEST(XlaRecurrent, LstmIsThatOfTheCpu) {
  at::manual_seed(51);
  const Case layers{
      "lstm", two_ways(4), [](const Tensors& t) {
        const Tensors states{state(t[0], 4), state(t[0], 4)};
        return std::get<0>(at::lstm(t[0], states, weights_in(t), true, 2, 0.0, /*train=*/true, true, false));
      }};
  expect_as_on_cpu(layers);
  expect_gradients_as_on_cpu(layers);
}

TEST(XlaRecurrent, GruIsThatOfTheCpu) {
  at::manual_seed(52);
  const Case layers{
      "gru", two_ways(3), [](const Tensors& t) {
        return std::get<0>(at::gru(t[0], state(t[0], 4), weights_in(t), true, 2, 0.0, true, true, false));
      }};
  expect_as_on_cpu(layers);
  expect_gradients_as_on_cpu(layers);
}

TEST(XlaRecurrent, SimpleLayersAreThoseOfTheCpu) {
  at::manual_seed(53);
  const auto tensors = two_ways(1);
  const Case tanh{"rnn_tanh", tensors, [](const Tensors& t) {
                    return std::get<0>(
                        at::rnn_tanh(t[0], state(t[0], 4), weights_in(t), true, 2, 0.0, true, true, false));
                  }};
  const Case relu{"rnn_relu", tensors, [](const Tensors& t) {
                    return std::get<0>(
                        at::rnn_relu(t[0], state(t[0], 4), weights_in(t), true, 2, 0.0, true, true, false));
                  }};
  for (const auto& layers : {tanh, relu}) {
    expect_as_on_cpu(layers);
    expect_gradients_as_on_cpu(layers);
  }
}

// One step alone.
TEST(XlaRecurrent, CellsAreThoseOfTheCpu) {
  at::manual_seed(54);
  auto tensors = weights(4, kInputs);
  tensors.insert(tensors.begin(), normal({kBatch, kInputs}));
  const Case cell{"lstm_cell", tensors, [](const Tensors& t) {
                    const Tensors states{state(t[0], 1)[0], state(t[0], 1)[0]};
                    return std::get<0>(at::lstm_cell(t[0], states, t[1], t[2], t[3], t[4]));
                  }};
  expect_as_on_cpu(cell);
  expect_gradients_as_on_cpu(cell);
}

}  // namespace
}  // namespace lockstep::xla
