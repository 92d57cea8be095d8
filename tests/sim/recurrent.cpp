// LSTM and GRU as LibTorch runs them on CPUs without oneDNN. For PrivateUse1 it would take fused cells, which
// are there for CUDA only and have other bits. Packed sequences are left to it, and so do not run.
#include <ATen/ATen.h>

#include "sim/operators.h"

namespace lockstep::sim {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

// The weights of one layer in one direction.
struct CellWeights {
  Tensor w_ih, w_hh, b_ih, b_hh;
};

struct Hidden {
  Tensor h, c;  // a GRU has no c
};

struct Layers {
  bool has_biases;
  std::int64_t num_layers;
  double dropout;
  bool train, bidirectional, batch_first;
};

using Cell = Hidden (*)(const Tensor& of_input, const Hidden& hidden, const CellWeights& weights);

Hidden lstm_step(const Tensor& of_input, const Hidden& hidden, const CellWeights& weights) {
  const auto gates = at::linear(hidden.h, weights.w_hh, weights.b_hh).add_(of_input).unsafe_chunk(4, 1);
  auto in = gates[0].sigmoid_(), forget = gates[1].sigmoid_(), cell = gates[2].tanh_(),
       out = gates[3].sigmoid_();
  auto c = (forget * hidden.c).add_(in * cell);
  return {.h = out * c.tanh(), .c = c};
}

Hidden gru_step(const Tensor& of_input, const Hidden& hidden, const CellWeights& weights) {
  const auto input = of_input.unsafe_chunk(3, 1);
  const auto gates = at::linear(hidden.h, weights.w_hh, weights.b_hh).unsafe_chunk(3, 1);
  auto reset = gates[0].add_(input[0]).sigmoid_(), update = gates[1].add_(input[1]).sigmoid_();
  auto fresh = input[2].add(gates[2].mul_(reset)).tanh_();
  return {.h = (hidden.h - fresh).mul_(update).add_(fresh), .c = {}};
}

CellWeights weights_of(at::TensorList params, std::size_t cell, bool has_biases) {
  const auto first = cell * (has_biases ? 4 : 2);
  if (!has_biases) return {params[first], params[first + 1], {}, {}};
  return {params[first], params[first + 1], params[first + 2], params[first + 3]};
}

// `input` is of steps x batch x features; `hidden` is at its end afterwards.
Tensor run_direction(const Tensor& input, Hidden& hidden, const CellWeights& weights, Cell cell,
                     bool is_reverse) {
  const auto steps = at::linear(input, weights.w_ih, weights.b_ih).unbind(0);
  Tensors outputs(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto step = is_reverse ? steps.size() - 1 - i : i;
    hidden = cell(steps[step], hidden, weights);
    outputs[step] = hidden.h;
  }
  return at::stack(outputs, 0);
}

std::tuple<Tensor, Tensor, Tensor> run_layers(Tensor input, const Tensor& h0, const Tensor& c0,
                                              at::TensorList params, const Layers& layers, Cell cell) {
  if (layers.batch_first) input = input.transpose(0, 1);
  const std::size_t directions = layers.bidirectional ? 2 : 1;
  Tensors h, c;
  for (std::int64_t layer = 0; layer < layers.num_layers; ++layer) {
    Tensors outputs;
    for (std::size_t direction = 0; direction < directions; ++direction) {
      const auto index = static_cast<std::int64_t>(h.size());
      Hidden hidden{.h = h0.select(0, index), .c = c0.defined() ? c0.select(0, index) : Tensor()};
      const auto weights = weights_of(params, h.size(), layers.has_biases);
      outputs.push_back(run_direction(input, hidden, weights, cell, direction == 1));
      h.push_back(hidden.h);
      c.push_back(hidden.c);
    }
    input = directions == 1 ? outputs.front() : at::cat(outputs, -1);
    if (layers.dropout > 0 && layer + 1 < layers.num_layers)
      input = at::dropout(input, layers.dropout, layers.train);
  }
  if (layers.batch_first) input = input.transpose(0, 1);
  return {input, at::stack(h, 0), c0.defined() ? at::stack(c, 0) : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, at::TensorList hx, at::TensorList params,
                                        bool has_biases, std::int64_t num_layers, double dropout, bool train,
                                        bool bidirectional, bool batch_first) {
  return run_layers(input, hx[0], hx[1], params,
                    {has_biases, num_layers, dropout, train, bidirectional, batch_first}, &lstm_step);
}

std::tuple<Tensor, Tensor> gru(const Tensor& input, const Tensor& hx, at::TensorList params, bool has_biases,
                               std::int64_t num_layers, double dropout, bool train, bool bidirectional,
                               bool batch_first) {
  auto [output, h, _] = run_layers(
      input, hx, {}, params, {has_biases, num_layers, dropout, train, bidirectional, batch_first}, &gru_step);
  return {output, h};
}

Tensor or_undefined(const std::optional<Tensor>& tensor) { return tensor.value_or(Tensor()); }

std::tuple<Tensor, Tensor> lstm_cell(const Tensor& input, at::TensorList hx, const Tensor& w_ih,
                                     const Tensor& w_hh, const std::optional<Tensor>& b_ih,
                                     const std::optional<Tensor>& b_hh) {
  const CellWeights weights{w_ih, w_hh, or_undefined(b_ih), or_undefined(b_hh)};
  auto hidden = lstm_step(at::linear(input, w_ih, b_ih), {hx[0], hx[1]}, weights);
  return {hidden.h, hidden.c};
}

Tensor gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                const std::optional<Tensor>& b_ih, const std::optional<Tensor>& b_hh) {
  const CellWeights weights{w_ih, w_hh, or_undefined(b_ih), or_undefined(b_hh)};
  return gru_step(at::linear(input, w_ih, b_ih), {hx, {}}, weights).h;
}

}  // namespace

// They are made of operators that can be differentiated, and so stand above autograd, too.
void add_recurrent_operators(torch::Library& aten, torch::Library& autograd) {
  for (auto* const library : {&aten, &autograd}) {
    library->impl("lstm.input", &lstm);
    library->impl("gru.input", &gru);
    library->impl("lstm_cell", &lstm_cell);
    library->impl("gru_cell", &gru_cell);
  }
}

}  // namespace lockstep::sim
