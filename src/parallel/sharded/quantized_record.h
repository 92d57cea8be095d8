// A run of numbers as it travels: their codes, then the scales of the blocks, in one tensor of bytes.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

#include "parallel/sharded/block_quantizer.h"

namespace lockstep::detail {

/// Elements of tensors of the CPU that are converted at once: they stay in the cache. Whole blocks.
inline constexpr std::int64_t kRecordTile = 64 * kQuantizedBlock;

/// Flat tensors of one device; records are of bytes() bytes and begin at multiples of 4. On the CPU by
/// block_quantizer.h, on devices by kernels of our own (device/cuda_kernels.h) or by LibTorch's operators,
/// with the same bits; the host waits for none of it.
/// Exported for tests.
class LOCKSTEP_API RecordFormat {
 public:
  RecordFormat(std::int64_t elements, CodeBits bits) : elements_(elements), bits_(bits) {}

  std::int64_t elements() const { return elements_; }
  std::int64_t bytes() const;

  /// `values` are of any floating-point type.
  void write(const at::Tensor& values, const at::Tensor& record) const;
  void read(const at::Tensor& record, const at::Tensor& values) const;
  /// The same of a part that begins at element `begin`, where a block does: `values` are float32.
  void write_part(const at::Tensor& values, const at::Tensor& record, std::int64_t begin) const;
  void read_part(const at::Tensor& record, std::int64_t begin, const at::Tensor& values) const;
  /// What the records, which lie side by side, stand for, side by side.
  void read_all(const at::Tensor& records, const at::Tensor& values) const;
  /// Adds it to `sums`, which are float32.
  void add(const at::Tensor& record, const at::Tensor& sums) const;

 private:
  std::int64_t elements_;
  CodeBits bits_;
};

}  // namespace lockstep::detail
