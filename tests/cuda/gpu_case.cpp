// What of liblockstep_cuda.so needs a GPU, on the first one of this machine: `gpu_case
// kernels|nccl|speed|steps`. Prints a line of JSON per check, {"check", "ok", ...}, and ends with 1 where one
// failed, with 2 where there is no GPU. tools/gpu_check.sh runs it.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/lockstep.h>
#include <lockstep/torch.h>

#include "comm/c10d.h"
#include "comm/collectives/device_collectives.h"
#include "device/cuda_plugin.h"
#include "gpu_case.h"
#include "parallel/sharded/block_quantizer.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace lockstep::detail {
namespace {

using nlohmann::json;

const c10::Device kGpu(c10::kCUDA, 0);

bool has_failed = false;

}  // namespace

void report(const std::string& check, bool is_ok, json more) {
  has_failed = has_failed || !is_ok;
  more["check"] = check;
  more["ok"] = is_ok;
  std::puts(more.dump().c_str());
  std::fflush(stdout);
}

namespace {

std::int64_t different(const at::Tensor& on_gpu, const at::Tensor& expected) {
  return (on_gpu.to(at::kCPU) != expected).sum().item<std::int64_t>();
}

std::vector<NamedParameter> parameters_on(c10::Device device, at::ScalarType dtype) {
  torch::manual_seed(3);
  std::vector<NamedParameter> parameters;
  for (const std::int64_t size : {1, 7, 4096, 100003}) {
    for (int copy = 0; copy < 20; ++copy) {
      auto tensor = torch::randn({size}).to(dtype).to(device).set_requires_grad(true);
      tensor.mutable_grad() = torch::randn({size}).to(dtype).to(device);
      parameters.push_back({"p" + std::to_string(parameters.size()), tensor});
    }
  }
  return parameters;
}

// Three steps, the second of which is left out. A power of the host and one of the device may differ in the
// last bit of float64.
void check_adam() {
  const std::vector<OptimizerFactory> factories{Adam{.lr = 1e-2, .weight_decay = 0.1}, AdamW{.lr = 1e-2},
                                                AdamW{.lr = 1e-2, .maximize = true}};
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const auto& factory : factories) {
      const auto expected = parameters_on(c10::kCPU, dtype), got = parameters_on(kGpu, dtype);
      const auto on_host = factory.create(expected), on_gpu = factory.create(got);
      for (int step = 0; step < 3; ++step) {
        if (step == 1) {
          on_gpu->leave_out_next_step_if(at::ones({}, at::TensorOptions(kGpu)));
        } else {
          on_host->step(0.37);
        }
        on_gpu->step(0.37);
      }
      std::int64_t count = 0, all = 0;
      double largest = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const auto host = expected[i].tensor.detach(), gpu = got[i].tensor.detach();
        count += different(gpu, host);
        all += host.numel();
        largest = std::max(largest, (gpu.to(at::kCPU) - host).abs().max().item<double>());
      }
      report("steps beside the CPU's", largest < 1e-6,
             {{"optimizer", on_host->name()},
              {"dtype", c10::toString(dtype)},
              {"elements", all},
              {"elements_of_other_bits", count},
              {"largest_difference", largest}});
    }
  }
}

void check_row_sums() {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int rows : {1, 2, 3, 5, 8, 13, 64}) {
      for (const auto op : {ReduceOp::kSum, ReduceOp::kAvg}) {
        const auto host = torch::randn({rows, 10007}).to(dtype);
        const auto count = different(reduced_rows(host.to(kGpu), op), reduced_rows(host, op));
        if (count > 0 || rows == 64)
          report("sum_rows has the CPU's bits", count == 0,
                 {{"dtype", c10::toString(dtype)}, {"rows", rows}, {"elements_of_other_bits", count}});
      }
    }
  }
}

void* current_cuda_stream() {
  return c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(kGpu).native_handle();
}

void check_copies() {
  const auto copy = load_cuda_plugin()->kernels.copy_scaled;
  std::vector<at::Tensor> from, to;
  std::vector<CudaCopy> copies;
  for (std::int64_t i = 0; i < 100; ++i) {
    from.push_back(torch::randn({i * 37}, at::TensorOptions(kGpu)));
    to.push_back(at::zeros({i * 37}, at::TensorOptions(kGpu).dtype(at::kBFloat16)));
    copies.push_back({from.back().const_data_ptr(), to.back().mutable_data_ptr(), i * 37});
  }
  const auto scale = at::full({}, 0.25, at::TensorOptions(kGpu).dtype(at::kDouble));
  const int error = copy({.copies = copies.data(),
                          .count = 100,
                          .from_type = CudaType::kFloat32,
                          .to_type = CudaType::kBFloat16,
                          .scale = scale.const_data_ptr<double>()},
                         current_cuda_stream());
  std::int64_t count = 0;
  for (std::size_t i = 0; i < from.size(); ++i)
    count += different(to[i], (from[i].to(at::kCPU) * 0.25).to(at::kBFloat16));
  report("copy_scaled has the bits of a product and a cast", error == 0 && count == 0,
         {{"error", error}, {"elements_of_other_bits", count}});
}

// Codes and scales of the CPU, and what they stand for.
void check_quantizer() {
  const auto& kernels = own_cuda_kernels();
  for (const auto bits : {CodeBits::k8, CodeBits::k4}) {
    constexpr std::int64_t kElements = 100003;
    const auto values = torch::randn({kElements}), restored = at::zeros({kElements});
    const auto codes = at::zeros({code_bytes(kElements, bits)}, at::kByte);
    const auto scales = at::zeros({block_count(kElements)});
    quantize(values.const_data_ptr<float>(), kElements, bits, codes.mutable_data_ptr<std::uint8_t>(),
             scales.mutable_data_ptr<float>());
    dequantize(codes.const_data_ptr<std::uint8_t>(), scales.const_data_ptr<float>(), kElements, bits,
               restored.mutable_data_ptr<float>());
    const auto on_gpu = values.to(kGpu), gpu_restored = at::zeros_like(on_gpu);
    const auto gpu_codes = at::zeros_like(codes, kGpu), gpu_scales = at::zeros_like(scales, kGpu);
    const int first = kernels.quantize({.values = on_gpu.const_data_ptr<float>(),
                                        .elements = kElements,
                                        .codes = gpu_codes.mutable_data_ptr<std::uint8_t>(),
                                        .scales = gpu_scales.mutable_data_ptr<float>(),
                                        .bits = static_cast<int>(bits)},
                                       current_cuda_stream());
    const int second = kernels.dequantize({.codes = gpu_codes.const_data_ptr<std::uint8_t>(),
                                           .scales = gpu_scales.const_data_ptr<float>(),
                                           .elements = kElements,
                                           .values = gpu_restored.mutable_data_ptr<float>(),
                                           .bits = static_cast<int>(bits)},
                                          current_cuda_stream());
    const auto count =
        different(gpu_codes, codes) + different(gpu_scales, scales) + different(gpu_restored, restored);
    report("quantize has the CPU's bits", first == 0 && second == 0 && count == 0,
           {{"bits", static_cast<int>(bits)}, {"elements_of_other_bits", count}});
  }
}

// By ls::cross_entropy() on both: LibTorch's operator on the CPU, the kernels on the GPU.
void check_cross_entropy() {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto host = (torch::randn({64, 50304}) * 4).to(dtype);
    auto targets = at::randint(50304, {64}, at::kLong);
    targets[3] = -100;
    auto expected = host.to(at::kFloat).set_requires_grad(true);
    auto scores = host.to(kGpu).set_requires_grad(true);
    const auto loss = cross_entropy(expected, targets), gpu_loss = cross_entropy(scores, targets.to(kGpu));
    loss.backward();
    gpu_loss.backward();
    const double of_loss = std::abs(gpu_loss.item<double>() - loss.item<double>());
    const double of_gradient =
        (scores.grad().to(at::kCPU).to(at::kFloat) - expected.grad()).abs().max().item<double>();
    const double largest = expected.grad().abs().max().item<double>();
    const double limit = dtype == at::kFloat ? 1e-5 : 1e-2;
    report("cross_entropy beside LibTorch's",
           of_loss < 1e-5 * loss.item<double>() && of_gradient < limit * largest,
           {{"dtype", c10::toString(dtype)},
            {"difference_of_loss", of_loss},
            {"largest_difference_of_gradient", of_gradient}});
  }
}

void check_kernels() {
  const auto& kernels = own_cuda_kernels();
  const bool are_there = kernels.adam_step != nullptr && kernels.copy_scaled != nullptr &&
                         kernels.sum_rows != nullptr && kernels.quantize != nullptr &&
                         kernels.dequantize != nullptr && kernels.cross_entropy != nullptr &&
                         kernels.cross_entropy_gradient != nullptr;
  report("the library has kernels", are_there);
  if (!are_there) return;
  check_adam();
  check_row_sums();
  check_copies();
  check_quantizer();
  check_cross_entropy();
}

// Collectives of NCCL among one rank: what they post, and that streams are ordered.
void check_nccl() {
  const auto* const plugin = load_cuda_plugin();
  report("the library is there and fits", plugin != nullptr);
  if (plugin == nullptr) return;
  std::array<char, 64> identity{};
  report("the device tells its UUID", plugin->device_identity(0, identity.data(), identity.size()) == 0,
         {{"uuid", identity.data()}});
  for (const auto reduction : {Reduction::kOrdered, Reduction::kFast}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const auto backend = c10::intrusive_ptr<c10d::Backend>::reclaim(
        plugin->connect_nccl(store.get(), 0, 1, 0, std::chrono::seconds(60)));
    std::int64_t sent = 0;
    DeviceCollectives collectives(backend, reduction, kGpu, [&](std::int64_t bytes) { sent += bytes; });
    const auto input = torch::randn({1000}, at::TensorOptions(kGpu));
    const auto check = [&](const std::string& name, Collective collective, const at::Tensor& output) {
      const auto expected = input.to(at::kCPU);
      collectives.post(collective)->order_outputs();
      report(name + (reduction == Reduction::kFast ? ", fast" : ", ordered"),
             different(output * 1, expected) == 0);
    };
    const auto fresh = [&] { return at::zeros({1000}, at::TensorOptions(kGpu)); };
    auto output = input.clone();
    check("all_reduce", {.kind = CollectiveKind::kAllReduce, .output = output}, output);
    output = input.clone();
    check("all_reduce of a list", {.kind = CollectiveKind::kAllReduceList, .outputs = {output}}, output);
    output = input.clone();
    check("reduce", {.kind = CollectiveKind::kReduce, .output = output}, output);
    check("broadcast", {.kind = CollectiveKind::kBroadcast, .output = output}, output);
    output = fresh();
    check("all_gather", {.kind = CollectiveKind::kAllGather, .output = output, .input = input}, output);
    output = fresh();
    check("all_gather of a list",
          {.kind = CollectiveKind::kAllGatherList, .input = input, .outputs = {output}}, output);
    output = fresh();
    check("reduce_scatter", {.kind = CollectiveKind::kReduceScatter, .output = output, .input = input},
          output);
    output = fresh();
    check("all_to_all", {.kind = CollectiveKind::kAllToAll, .output = output, .input = input}, output);
    output = fresh();
    check("all_to_all of a list",
          {.kind = CollectiveKind::kAllToAllList, .outputs = {output}, .inputs = {input}}, output);
    backend->abort();
    report("abort returns", true);
  }
}

// Bytes per second of `body`, which moves `bytes`: the best of some runs.
double bytes_per_second(double bytes, const std::function<void()>& body) {
  double best = 0;
  for (int round = 0; round < 10; ++round) {
    body();
    synchronize(kGpu);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 10; ++i) body();
    synchronize(kGpu);
    best = std::max(
        best, 10 * bytes / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

using Tell = std::function<void(const std::string& what, double bytes_per_second)>;

// Gradients of 96 tensors in bfloat16, added to a flat one of float32.
void measure_copy_in(const at::Tensor& x, const Tell& tell) {
  constexpr std::int64_t kTensors = 96;
  const auto size = x.numel() / kTensors;
  const auto from = x.narrow(0, 0, size * kTensors).to(at::kBFloat16), to = x.clone();
  std::vector<CudaCopy> copies;
  for (std::int64_t i = 0; i < kTensors; ++i)
    copies.push_back(
        {from.const_data_ptr<at::BFloat16>() + i * size, to.mutable_data_ptr<float>() + i * size, size});
  const CudaCopies all{
      .copies = copies.data(), .count = kTensors, .from_type = CudaType::kBFloat16, .adds = true};
  const auto launch = own_cuda_kernels().copy_scaled;
  tell("copy-in of 96 gradients that is added",
       bytes_per_second(10.0 * static_cast<double>(size * kTensors),
                        [&] { launch(all, current_cuda_stream()); }));
}

void measure_quantizer(const at::Tensor& x, const at::Tensor& y, const Tell& tell) {
  const auto& kernels = own_cuda_kernels();
  const auto elements = x.numel();
  const auto codes = at::zeros({code_bytes(elements, CodeBits::k8)}, x.options().dtype(at::kByte));
  const auto scales = at::zeros({block_count(elements)}, x.options());
  const CudaQuantization to{.values = x.const_data_ptr<float>(),
                            .elements = elements,
                            .codes = codes.mutable_data_ptr<std::uint8_t>(),
                            .scales = scales.mutable_data_ptr<float>()};
  const CudaDequantization back{
      .codes = to.codes, .scales = to.scales, .elements = elements, .values = y.mutable_data_ptr<float>()};
  const double bytes = (5 + 1.0 / 64) * static_cast<double>(elements);
  tell("quantize to 8 bits", bytes_per_second(bytes, [&] { kernels.quantize(to, current_cuda_stream()); }));
  tell("dequantize of 8 bits",
       bytes_per_second(bytes, [&] { kernels.dequantize(back, current_cuda_stream()); }));
}

// Forward and backward: three passes over scores of 16 bits.
void measure_cross_entropy(const Tell& tell) {
  constexpr std::int64_t kRows = 8192, kClasses = 50304;
  const auto scores =
      torch::randn({kRows, kClasses}, at::TensorOptions(kGpu).dtype(at::kBFloat16)).set_requires_grad(true);
  const auto targets = at::randint(kClasses, {kRows}, at::TensorOptions(kGpu).dtype(at::kLong));
  const auto measured = [&](const char* what, const auto& loss_of) {
    tell(what, bytes_per_second(6.0 * kRows * kClasses, [&] {
           scores.mutable_grad() = at::Tensor();
           loss_of().backward();
         }));
  };
  measured("cross_entropy of 50,304 classes and its gradient",
           [&] { return cross_entropy(scores, targets); });
  measured("the same by LibTorch in float32",
           [&] { return at::cross_entropy_loss(scores.to(at::kFloat), targets); });
}

void measure() {
  constexpr std::int64_t kParameters = 124'000'000;
  const at::TensorOptions floats(kGpu);
  const auto x = torch::randn({kParameters}, floats), y = at::empty_like(x);
  const double ceiling = bytes_per_second(8.0 * kParameters, [&] { y.copy_(x); });
  const auto tell = [&](const std::string& what, double rate) {
    report("speed of " + what, true, {{"bytes_per_second", rate}, {"of_a_copy", rate / ceiling}});
  };
  tell("a copy on the device", ceiling);
  auto parameter = x.clone().set_requires_grad(true);
  parameter.mutable_grad() = y;
  const std::vector<NamedParameter> parameters{{"p", parameter}};
  const auto optimizer = OptimizerFactory(AdamW{.lr = 1e-3}).create(parameters);
  tell("AdamW, 124 million parameters", bytes_per_second(28.0 * kParameters, [&] { optimizer->step(0.5); }));
  const auto rows = x.narrow(0, 0, kParameters / 8 * 8).view({8, kParameters / 8});
  tell("sum_rows of 8 rows",
       bytes_per_second(4.5 * kParameters, [&] { reduced_rows(rows, ReduceOp::kSum); }));
  measure_copy_in(x, tell);
  measure_quantizer(x, y, tell);
  measure_cross_entropy(tell);
}

int run(std::string_view part) {
  const auto& cuda = *find_accelerator("cuda");
  if (cuda.count() == 0) {
    std::fprintf(stderr, "gpu_case: %s\n", cuda.absence().c_str());
    return 2;
  }
  ::setenv("LOCKSTEP_CUDA_KERNELS", "1", /*replace=*/0);
  begin_on_device(cuda, kGpu);
  if (part == "kernels") check_kernels();
  if (part == "nccl") check_nccl();
  if (part == "speed") measure();
  if (part == "steps") measure_steps();
  return has_failed ? 1 : 0;
}

}  // namespace
}  // namespace lockstep::detail

int main(int argc, char** argv) {
  const std::string_view part = argc == 2 ? argv[1] : "";
  if (part != "kernels" && part != "nccl" && part != "speed" && part != "steps") {
    std::fputs("usage: gpu_case kernels|nccl|speed|steps\n", stderr);
    return 2;
  }
  try {
    return lockstep::detail::run(part);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_case: %s\n", error.what());
    return 1;
  }
}
