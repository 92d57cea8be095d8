#include "sim/own_kernels.h"

#include <mutex>
#include <utility>

#include "cuda/kernels.h"
#include "device/own_kernels.h"
#include "parallel/sharded/block_quantizer.h"
#include "sim/runtime.h"
#include "sim/streams.h"

namespace lockstep::sim {
namespace {

using detail::CudaType;

std::mutex launches_mutex;
std::vector<std::string> launches;

std::mutex host_cuda_mutex;  // its blocks and threads are variables of the process

std::int64_t bytes_of(CudaType type) {
  return type == CudaType::kFloat64 ? 8 : type == CudaType::kFloat32 ? 4 : 2;
}

// What a kernel of CUDA is given, with the memory that it reads and writes.
class OwnLaunch {
 public:
  OwnLaunch(void* stream, std::string text)
      : stream_(static_cast<int>(reinterpret_cast<std::intptr_t>(stream)) - 1), text_(std::move(text)) {}

  /// The address that the kernel sees; null is none.
  template <class T>
  void reads(T*& memory, std::int64_t bytes) {
    add(memory, bytes, /*is_written=*/false);
  }
  template <class T>
  void writes(T*& memory, std::int64_t bytes) {
    add(memory, bytes, /*is_written=*/true);
  }

  template <class Body>
  int issue(Body body) {
    {
      const std::lock_guard lock(launches_mutex);
      launches.push_back(text_);
    }
    enqueue(
        stream_,
        {.op = "own " + text_, .spans = std::move(spans_), .body = [body = std::move(body)](const Launch&) {
           const std::lock_guard lock(host_cuda_mutex);
           body();
         }});
    return 0;
  }

 private:
  template <class T>
  void add(T*& memory, std::int64_t bytes, bool is_written) {
    if (memory == nullptr || bytes == 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    spans_.push_back(
        {.begin = begin, .end = begin + static_cast<std::uintptr_t>(bytes), .is_written = is_written});
    memory = reinterpret_cast<T*>(runtime().space.for_kernels(memory));
  }

  int stream_;
  std::string text_;
  std::vector<Span> spans_;
};

std::string number(std::int64_t value) { return std::to_string(value); }

template <class Tensor>
std::int64_t elements_of(const std::vector<Tensor>& tensors) {
  std::int64_t elements = 0;
  for (const auto& tensor : tensors) elements += tensor.size;
  return elements;
}

int adam_step(const detail::CudaAdamStep& step, void* stream) {
  std::vector tensors(step.tensors, step.tensors + step.count);
  auto by = step;
  OwnLaunch launch(stream,
                   "adam_step of " + number(step.count) + " tensors of " + number(elements_of(tensors)));
  for (auto& tensor : tensors) {
    for (auto** memory : {&tensor.param, &tensor.exp_avg, &tensor.exp_avg_sq})
      launch.writes(*memory, tensor.size * bytes_of(step.type));
    launch.writes(tensor.copy, tensor.size * bytes_of(step.copy_type));
    launch.reads(tensor.gradient, tensor.size * bytes_of(step.gradient_type));
    launch.reads(tensor.step, 4);
  }
  launch.reads(by.grad_scale, 8);
  launch.reads(by.found_inf, 4);
  launch.reads(by.lr_on_device, 8);
  return launch.issue([by, tensors] {
    auto of_them = by;
    of_them.tensors = tensors.data();
    detail::cuda_adam_step(of_them, nullptr);
  });
}

int copy_scaled(const detail::CudaCopies& given, void* stream) {
  std::vector copies(given.copies, given.copies + given.count);
  auto by = given;
  OwnLaunch launch(stream,
                   "copy_scaled " + number(given.count) + " tensors of " + number(elements_of(copies)));
  for (auto& copy : copies) {
    launch.reads(copy.from, copy.size * bytes_of(given.from_type));
    launch.writes(copy.to, copy.size * bytes_of(given.to_type));
  }
  launch.reads(by.scale, 8);
  return launch.issue([by, copies] {
    auto of_them = by;
    of_them.copies = copies.data();
    detail::cuda_copy_scaled(of_them, nullptr);
  });
}

int sum_rows(const detail::CudaRowSum& given, void* stream) {
  auto by = given;
  OwnLaunch launch(stream, "sum_rows " + number(by.row_count) + " of " + number(by.size));
  launch.reads(by.rows, by.row_count * by.size * bytes_of(by.type));
  launch.writes(by.output, by.size * bytes_of(by.type));
  return launch.issue([by] { detail::cuda_sum_rows(by, nullptr); });
}

// Of codes and scales of so many elements.
template <class Quantization, class Use>
void use_blocks(Quantization& by, const Use& use) {
  const auto bits = static_cast<detail::CodeBits>(by.bits);
  use(by.codes, detail::code_bytes(by.elements, bits));
  use(by.scales, 4 * detail::block_count(by.elements));
}

int quantize(const detail::CudaQuantization& given, void* stream) {
  auto by = given;
  OwnLaunch launch(stream, "quantize " + number(by.elements) + " to " + number(by.bits) + " bits");
  launch.reads(by.values, 4 * by.elements);
  use_blocks(by, [&](auto*& memory, std::int64_t bytes) { launch.writes(memory, bytes); });
  return launch.issue([by] { detail::cuda_quantize(by, nullptr); });
}

int dequantize(const detail::CudaDequantization& given, void* stream) {
  auto by = given;
  OwnLaunch launch(stream, "dequantize " + number(by.elements) + " of " + number(by.bits) + " bits" +
                               (by.adds ? ", added" : ""));
  use_blocks(by, [&](auto*& memory, std::int64_t bytes) { launch.reads(memory, bytes); });
  launch.writes(by.values, 4 * by.elements);
  return launch.issue([by] { detail::cuda_dequantize(by, nullptr); });
}

void use_scores(OwnLaunch& launch, detail::CudaCrossEntropy& by, bool is_forward) {
  launch.reads(by.scores, by.rows * by.classes * bytes_of(by.type));
  launch.reads(by.targets, 8 * by.rows);
  launch.writes(by.losses, 4 * by.rows);
  is_forward ? launch.writes(by.log_sums, 4 * by.rows) : launch.reads(by.log_sums, 4 * by.rows);
}

int cross_entropy(const detail::CudaCrossEntropy& given, void* stream) {
  auto by = given;
  OwnLaunch launch(stream, "cross_entropy " + number(by.rows) + " x " + number(by.classes));
  use_scores(launch, by, /*is_forward=*/true);
  return launch.issue([by] { detail::cuda_cross_entropy(by, nullptr); });
}

int cross_entropy_gradient(const detail::CudaCrossEntropyGradient& given, void* stream) {
  auto by = given;
  const auto& of = given.forward;
  OwnLaunch launch(stream, "cross_entropy_gradient " + number(of.rows) + " x " + number(of.classes));
  use_scores(launch, by.forward, /*is_forward=*/false);
  launch.reads(by.scale, 4);
  launch.writes(by.gradient, of.rows * of.classes * bytes_of(of.type));
  return launch.issue([by] { detail::cuda_cross_entropy_gradient(by, nullptr); });
}

constexpr detail::CudaKernels kKernels{.adam_step = &adam_step,
                                       .copy_scaled = &copy_scaled,
                                       .sum_rows = &sum_rows,
                                       .quantize = &quantize,
                                       .dequantize = &dequantize,
                                       .cross_entropy = &cross_entropy,
                                       .cross_entropy_gradient = &cross_entropy_gradient};

}  // namespace

OwnKernels::OwnKernels() { detail::set_own_kernels(kDeviceType, &kKernels); }
OwnKernels::~OwnKernels() { detail::set_own_kernels(kDeviceType, nullptr); }

std::vector<std::string> take_own_launches() {
  const std::lock_guard lock(launches_mutex);
  return std::exchange(launches, {});
}

}  // namespace lockstep::sim
