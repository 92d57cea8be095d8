// What quantised gradients have lost, chunk by chunk: the error feedback of LoCo (arXiv:2407.04480).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <lockstep/parallel/sharded/zero_plus_plus.h>

#include "parallel/sharded/quantized_record.h"

namespace lockstep::detail {

/// A moving average of errors for each of some chunks, in 8 bits.
class ChunkErrors {
 public:
  ChunkErrors(std::int64_t chunks, std::int64_t elements, const ErrorFeedback& options);

  /// A reduction begins: forgets all, when it is time.
  void begin();

  /// Forgets all.
  void forget();

  /// Writes `values`, and what was lost of chunk `chunk` before, to `record`; keeps what that loses. Where
  /// numbers are not finite nothing is kept.
  void write(std::int64_t chunk, const at::Tensor& values, const RecordFormat& format,
             const at::Tensor& record);

 private:
  RecordFormat kept_;
  ErrorFeedback options_;
  at::Tensor records_;
  std::int64_t reductions_ = 0;
};

}  // namespace lockstep::detail
