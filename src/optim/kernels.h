// The arithmetic of the optimizers, one element at a time; free of torch.
//
// LibTorch's fused kernels use multiply-add in their vector bodies and not in their tails, so an element's
// last bit depends on where it lies: a shard would differ from the whole. Here each operation is rounded on
// its own (kernel sources are compiled without contraction), so the bits depend on the element alone, never
// on position, length, instruction set or thread. Order of operations: torch.optim's. Exported for the tests
// that prove this.
#pragma once

#include <cstdint>

#include <lockstep/base/export.h>

namespace lockstep::detail {

// Gradients as kernels are given them: of any type that they read. Free of torch.

enum class GradientType { kFloat32, kFloat64, kBFloat16, kFloat16 };

/// Consecutive elements that somebody else owns.
struct Gradients {
  Gradients(const float* all) : elements(all), type(GradientType::kFloat32) {}
  Gradients(const double* all) : elements(all), type(GradientType::kFloat64) {}
  Gradients(const void* all, GradientType type_of_all) : elements(all), type(type_of_all) {}

  const void* elements;
  GradientType type;
};

// Where kernels write float32 in 16 bits. Free of torch.

enum class NarrowType { kBFloat16, kFloat16 };

/// Consecutive elements that somebody else owns; null: none are wanted.
struct NarrowElements {
  void* elements = nullptr;
  NarrowType type = NarrowType::kBFloat16;
};

/// Instruction sets a kernel is compiled for. All give the same bits.
enum class Isa { kBaseline, kAvx2, kAvx512 };

/// The best one this machine has.
LOCKSTEP_API Isa best_isa();

struct AdamCoefficients {
  double grad_scale = 1.0;  // multiplies the gradient first; negative to maximise
  double l2 = 0.0;          // times the parameter, added to the gradient (Adam)
  double decay = 1.0;       // multiplies the parameter (AdamW): 1 - lr * weight_decay
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double step_size = 0.0;   // lr / (1 - beta1^step), or lr
  double root_bias2 = 1.0;  // sqrt(1 - beta2^step), or 1
};

struct SgdCoefficients {
  double grad_scale = 1.0;  // as above
  double l2 = 0.0;          // as above
  double lr = 0.0;
  double momentum = 0.0;   // multiplies the buffer: 0 in a parameter's first step
  double gradient = 1.0;   // share of the gradient that enters the buffer: 1 - dampening, 1 in the first step
  double lookahead = 0.0;  // nesterov: the momentum, also in the first step
  bool nesterov = false;
};

struct AdagradCoefficients {
  double grad_scale = 1.0;  // as above
  double l2 = 0.0;          // as above
  double step_size = 0.0;   // lr / (1 + lr_decay * (step - 1))
  double eps = 1e-10;
};

struct LionCoefficients {
  double grad_scale = 1.0;  // as above
  double decay = 1.0;       // as above
  double beta1 = 0.9;       // of the mean whose sign is the direction
  double beta2 = 0.999;     // of the mean that is kept
  double lr = 0.0;
};

/// One contiguous parameter with its gradient, which is taken to T as it is read, and state. What becomes of
/// the parameter is written to `copy`, too, where there is one: in float32 only.
template <class T>
struct AdamSegment {
  T* param;
  Gradients grad;
  T* exp_avg;
  T* exp_avg_sq;
  std::int64_t size;
  AdamCoefficients by;
  NarrowElements copy = {};
};

/// As AdamSegment. `momentum_buffer` is null without momentum.
template <class T>
struct SgdSegment {
  T* param;
  Gradients grad;
  T* momentum_buffer;
  std::int64_t size;
  SgdCoefficients by;
  NarrowElements copy = {};
};

/// As AdamSegment.
template <class T>
struct AdagradSegment {
  T* param;
  Gradients grad;
  T* sum;
  std::int64_t size;
  AdagradCoefficients by;
  NarrowElements copy = {};
};

/// As AdamSegment.
template <class T>
struct LionSegment {
  T* param;
  Gradients grad;
  T* exp_avg;
  std::int64_t size;
  LionCoefficients by;
  NarrowElements copy = {};
};

/// Updates elements [begin, end) of the segment. Instantiated for float and double.
template <class T>
LOCKSTEP_API void update(const AdamSegment<T>& segment, std::int64_t begin, std::int64_t end, Isa isa);
template <class T>
LOCKSTEP_API void update(const SgdSegment<T>& segment, std::int64_t begin, std::int64_t end, Isa isa);
template <class T>
LOCKSTEP_API void update(const AdagradSegment<T>& segment, std::int64_t begin, std::int64_t end, Isa isa);
template <class T>
LOCKSTEP_API void update(const LionSegment<T>& segment, std::int64_t begin, std::int64_t end, Isa isa);

/// The sum of squares in float64, in 16 lanes that are then added in pairs. Instantiated for float and
/// double.
template <class T>
LOCKSTEP_API double square_sum(const T* values, std::int64_t size, Isa isa);

/// The same of elements [begin, end): of float64 as they are, else as float32.
LOCKSTEP_API double square_sum(const Gradients& gradients, std::int64_t begin, std::int64_t end, Isa isa);

/// Rounds elements [begin, end) of `from` to the nearest, ties to even, and writes them to the same places of
/// `to`. Exported for the tests of its bits.
LOCKSTEP_API void narrow(const float* from, const NarrowElements& to, std::int64_t begin, std::int64_t end,
                         Isa isa);

}  // namespace lockstep::detail
