#include "fabric/flop_formulas.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <unordered_map>

#include <lockstep/torch.h>

#include <ATen/ExpandUtils.h>

namespace lockstep::detail {
namespace {

using Arguments = c10::ArrayRef<const c10::IValue>;
using Formula = OperatorFlops (*)(Arguments);

double product(at::IntArrayRef sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), 1.0,
                         [](double all, std::int64_t size) { return all * static_cast<double>(size); });
}

double elements(const at::Tensor& tensor) { return product(tensor.sizes()); }

// Batches of matrices are broadcast; a vector is a matrix of one row, or of one column. What the operator is
// about to refuse is nothing.
double matmul_macs(const at::Tensor& a, const at::Tensor& b) {
  if (a.dim() == 0 || b.dim() == 0 || a.size(-1) != b.size(b.dim() == 1 ? 0 : -2)) return 0;
  if (b.dim() == 1) return elements(a);
  if (a.dim() == 1) return elements(b);
  const auto batch = at::infer_size(a.sizes().slice(0, static_cast<std::size_t>(a.dim() - 2)),
                                    b.sizes().slice(0, static_cast<std::size_t>(b.dim() - 2)));
  return product(batch) * static_cast<double>(a.size(-2)) * static_cast<double>(a.size(-1)) *
         static_cast<double>(b.size(-1));
}

OperatorFlops linear(Arguments of) {
  const auto &input = of[0].toTensor(), &weight = of[1].toTensor();
  return {.macs = elements(input) * (weight.dim() > 1 ? static_cast<double>(weight.size(0)) : 1.0)};
}

OperatorFlops matmul(Arguments of) { return {.macs = matmul_macs(of[0].toTensor(), of[1].toTensor())}; }

// What is added comes first, mostly a bias: it counts as nothing, as in linear.
OperatorFlops add_matmul(Arguments of) { return {.macs = matmul_macs(of[1].toTensor(), of[2].toTensor())}; }

OperatorFlops of_each_element(Arguments of) { return {.other = elements(of[0].toTensor())}; }

OperatorFlops nothing(Arguments) { return {}; }

OperatorFlops of_each_result(Arguments of) {
  const auto& a = of[0].toTensor();
  if (!of[1].isTensor()) return {.other = elements(a)};
  return {.other = product(at::infer_size(a.sizes(), of[1].toTensor().sizes()))};
}

// A vector that a matrix or more is raised by is a bias: F::linear adds that of a batch of sequences so.
OperatorFlops add_to(Arguments of) {
  const bool is_bias = of[1].isTensor() && of[1].toTensor().dim() == 1 && of[0].toTensor().dim() > 1;
  return is_bias ? OperatorFlops{} : of_each_element(of);
}

bool is_given(const c10::IValue& tensor) { return tensor.isTensor() && tensor.toTensor().defined(); }

template <std::size_t kWeight>
OperatorFlops normalization(Arguments of) {
  return {.other = elements(of[0].toTensor()) * (is_given(of[kWeight]) ? 5 : 4)};
}

OperatorFlops batch_norm(Arguments of) {
  const bool is_affine = is_given(of[1]), trains = of[5].toBool();
  const int each = trains ? (is_affine ? 5 : 4) : (is_affine ? 2 : 1);
  return {.other = elements(of[0].toTensor()) * each};
}

struct Convolution {
  const at::Tensor& input;
  const at::Tensor& weight;
  std::vector<std::int64_t> stride, padding, dilation;
  bool is_transposed;
  std::vector<std::int64_t> output_padding;

  // Those that the operator is about to refuse count nothing.
  bool is_valid() const {
    const auto dims = static_cast<std::size_t>(std::max<std::int64_t>(input.dim() - 2, 0));
    const auto fits = [dims](const auto& list) { return list.size() == 1 || list.size() == dims; };
    return dims > 0 && weight.dim() == input.dim() && weight.size(0) > 0 && fits(stride) && fits(padding) &&
           fits(dilation) && (!is_transposed || fits(output_padding)) &&
           std::ranges::all_of(stride, [](auto step) { return step > 0; });
  }
  // Places of the output, in all samples, for each channel.
  double positions() const {
    double all = static_cast<double>(input.size(0));
    for (std::size_t i = 0; i + 2 < static_cast<std::size_t>(input.dim()); ++i) {
      const auto at = [i](const auto& values) { return values.size() == 1 ? values[0] : values[i]; };
      const auto size = input.sizes()[i + 2];
      const auto reach = at(dilation) * (weight.sizes()[i + 2] - 1);
      all *= static_cast<double>(is_transposed ? (size - 1) * at(stride) - 2 * at(padding) + reach +
                                                     at(output_padding) + 1
                                               : (size + 2 * at(padding) - reach - 1) / at(stride) + 1);
    }
    return all;
  }
  // A weight is [out, in / groups, ...], or transposed [in, out / groups, ...].
  double macs() const {
    if (!is_valid()) return 0;
    const auto kernel = elements(weight) / static_cast<double>(weight.size(0));
    return is_transposed ? elements(input) * kernel
                         : positions() * static_cast<double>(weight.size(0)) * kernel;
  }
};

// From `first` on: input, weight, something, stride, padding, dilation, transposed, output padding, groups.
Convolution convolution_of(Arguments of, std::size_t first) {
  return {of[first].toTensor(),        of[first + 1].toTensor(),    of[first + 3].toIntVector(),
          of[first + 4].toIntVector(), of[first + 5].toIntVector(), of[first + 6].toBool(),
          of[first + 7].toIntVector()};
}

OperatorFlops convolution(Arguments of) {
  const auto call = convolution_of(of, 0);
  const bool adds = call.is_valid() && is_given(of[2]);
  return {.macs = call.macs(), .other = adds ? elements(of[2].toTensor()) * call.positions() : 0.0};
}

// The gradients of input and weight are a convolution each.
OperatorFlops convolution_backward(Arguments of) {
  const auto wanted = of[10].toBoolList();
  return {.macs = convolution_of(of, 1).macs() * (int(wanted[0]) + int(wanted[1]))};
}

// All vectors of the last dimension.
double rows(const at::Tensor& tensor) { return product(tensor.sizes().slice(0, tensor.sizes().size() - 1)); }

// Scores, and with them the mean of values.
OperatorFlops attention(Arguments of) {
  const auto &query = of[0].toTensor(), &key = of[1].toTensor(), &value = of[2].toTensor();
  return {.macs = rows(query) * static_cast<double>(key.size(-2)) *
                  static_cast<double>(query.size(-1) + value.size(-1))};
}

// Scores once more, and the gradients of values, weights, queries and keys.
OperatorFlops attention_backward(Arguments of) {
  const auto &query = of[1].toTensor(), &key = of[2].toTensor(), &value = of[3].toTensor();
  return {.macs = rows(query) * static_cast<double>(key.size(-2)) *
                  static_cast<double>(3 * query.size(-1) + 2 * value.size(-1))};
}

// Of each item of a sequence, both matrices.
OperatorFlops recurrent_layer(Arguments of) {
  return {.macs = rows(of[0].toTensor()) * (elements(of[1].toTensor()) + elements(of[2].toTensor()))};
}

OperatorFlops recurrent_layer_backward(Arguments of) { return {.macs = 2 * recurrent_layer(of).macs}; }

const std::unordered_map<std::string_view, Formula>& formulas() {
  static const std::unordered_map<std::string_view, Formula> all{
      {"aten::linear", &linear},
      {"aten::matmul", &matmul},
      {"aten::mm", &matmul},
      {"aten::bmm", &matmul},
      {"aten::mv", &matmul},
      {"aten::addmm", &add_matmul},
      {"aten::addmv", &add_matmul},
      {"aten::baddbmm", &add_matmul},
      {"aten::convolution", &convolution},
      {"aten::convolution_backward", &convolution_backward},
      {"aten::scaled_dot_product_attention", &attention},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", &attention_backward},
      {"aten::mkldnn_rnn_layer", &recurrent_layer},
      {"aten::mkldnn_rnn_layer_backward", &recurrent_layer_backward},
      {"aten::relu", &of_each_element},
      {"aten::relu_", &of_each_element},
      {"aten::relu6", &of_each_element},
      {"aten::relu6_", &of_each_element},
      {"aten::prelu", &of_each_element},
      {"aten::elu", &of_each_element},
      {"aten::elu_", &of_each_element},
      {"aten::leaky_relu", &of_each_element},
      {"aten::leaky_relu_", &of_each_element},
      {"aten::silu", &of_each_element},
      {"aten::silu_", &of_each_element},
      {"aten::gelu", &of_each_element},
      {"aten::softmax", &of_each_element},
      {"aten::layer_norm", &normalization<2>},
      {"aten::group_norm", &normalization<2>},
      {"aten::instance_norm", &normalization<1>},
      {"aten::batch_norm", &batch_norm},
      {"aten::avg_pool1d", &of_each_element},
      {"aten::avg_pool2d", &of_each_element},
      {"aten::avg_pool3d", &of_each_element},
      {"aten::max_pool1d", &of_each_element},
      {"aten::max_pool2d", &of_each_element},
      {"aten::max_pool3d", &of_each_element},
      {"aten::max_pool1d_with_indices", &of_each_element},
      {"aten::max_pool2d_with_indices", &of_each_element},
      {"aten::max_pool3d_with_indices", &of_each_element},
      {"aten::adaptive_avg_pool1d", &of_each_element},
      {"aten::adaptive_avg_pool2d", &of_each_element},
      {"aten::adaptive_avg_pool3d", &of_each_element},
      {"aten::adaptive_max_pool1d", &of_each_element},
      {"aten::adaptive_max_pool2d", &of_each_element},
      {"aten::adaptive_max_pool3d", &of_each_element},
      {"aten::add", &of_each_result},
      {"aten::add_", &add_to},
      {"aten::mul", &of_each_result},
      {"aten::mul_", &of_each_result},
      {"aten::embedding", &nothing},
      {"aten::dropout", &nothing},
  };
  return all;
}

}  // namespace

std::optional<OperatorFlops> flops_of(std::string_view name, Arguments arguments) {
  const auto found = formulas().find(name);
  if (found == formulas().end()) return std::nullopt;
  const auto is_dense = [](const c10::IValue& argument) {
    return !argument.isTensor() || !argument.toTensor().defined() ||
           argument.toTensor().layout() == at::kStrided;
  };
  if (!std::ranges::all_of(arguments, is_dense)) return std::nullopt;
  return found->second(arguments);
}

}  // namespace lockstep::detail
