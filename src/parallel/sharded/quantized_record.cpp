#include "parallel/sharded/quantized_record.h"

#include <algorithm>
#include <limits>

#include <c10/core/DeviceGuard.h>

#include <lockstep/torch.h>

#include "device/cuda_plugin.h"
#include "device/own_kernels.h"

namespace lockstep::detail {
namespace {

// Calls use(begin, count) for each tile.
template <class Use>
void for_each_tile(std::int64_t elements, const Use& use) {
  for (std::int64_t begin = 0; begin < elements; begin += kRecordTile)
    use(begin, std::min(kRecordTile, elements - begin));
}

// Where the codes and the scale of an element lie that begins a block.
struct RecordPlace {
  std::uint8_t* codes;
  float* scales;
};

RecordPlace place_in(const at::Tensor& record, std::int64_t elements, CodeBits bits, std::int64_t begin) {
  auto* const bytes = record.mutable_data_ptr<std::uint8_t>();
  auto* const scales = reinterpret_cast<float*>(bytes + code_bytes(elements, bits));
  return {bytes + code_bytes(begin, bits), scales + block_count(begin)};
}

// The same on devices, by kernels of our own. Return false, and nothing has happened, where there is none.

bool is_for_kernels(const at::Tensor& numbers) {
  return numbers.scalar_type() == at::kFloat && numbers.is_contiguous();
}

bool quantize_by_kernel(const at::Tensor& values, CodeBits bits, const RecordPlace& place) {
  const auto launch = own_kernels(values.device()).quantize;
  if (launch == nullptr || !is_for_kernels(values)) return false;
  const c10::DeviceGuard guard(values.device());
  const CudaQuantization arguments{.values = values.const_data_ptr<float>(),
                                   .elements = values.numel(),
                                   .codes = place.codes,
                                   .scales = place.scales,
                                   .bits = static_cast<int>(bits)};
  check_cuda_launch(launch(arguments, kernel_stream(values)), "quantize");
  return true;
}

bool dequantize_by_kernel(const RecordPlace& place, CodeBits bits, const at::Tensor& values, bool adds) {
  const auto launch = own_kernels(values.device()).dequantize;
  if (launch == nullptr || !is_for_kernels(values)) return false;
  const c10::DeviceGuard guard(values.device());
  const CudaDequantization arguments{.codes = place.codes,
                                     .scales = place.scales,
                                     .elements = values.numel(),
                                     .values = values.mutable_data_ptr<float>(),
                                     .bits = static_cast<int>(bits),
                                     .adds = adds};
  check_cuda_launch(launch(arguments, kernel_stream(values)), "dequantize");
  return true;
}

// And by operators of LibTorch. Each of them rounds once, as the kernels of the CPU do:
// quotients are of tensors, since some devices multiply by the inverse of a number.

// The part of a record that holds what is quantised from element `begin` on, by blocks.
struct DeviceRecord {
  at::Tensor codes;   // [blocks, bytes of a block]
  at::Tensor scales;  // [blocks, 1], float32
};

DeviceRecord part_in(const at::Tensor& record, std::int64_t elements, CodeBits bits, std::int64_t begin,
                     std::int64_t count) {
  const auto blocks = block_count(count);
  const auto first = code_bytes(elements, bits) + block_count(begin) * 4;
  return {.codes = record.narrow(0, code_bytes(begin, bits), code_bytes(count, bits)).view({blocks, -1}),
          .scales = record.narrow(0, first, blocks * 4).view(at::kFloat).view({blocks, 1})};
}

// Whole blocks, the last one filled with zeros.
at::Tensor blocks_of(const at::Tensor& values) {
  const auto blocks = block_count(values.numel());
  const auto missing = blocks * kQuantizedBlock - values.numel();
  const auto whole = missing == 0 ? values : at::constant_pad_nd(values, {0, missing});
  return whole.view({blocks, kQuantizedBlock});
}

at::Tensor number_beside(const at::Tensor& values, double number) {
  return at::full({}, number, values.options());
}

at::Tensor scales_of(const at::Tensor& blocks, CodeBits bits) {
  const auto largest = blocks.abs().amax(1, /*keepdim=*/true);  // NaN where there is one
  auto scales = largest.div(number_beside(largest, largest_code(bits)));
  scales.masked_fill_(largest.lt(kSmallestMagnitude), 0.0);
  return scales.masked_fill_(largest.isfinite().logical_not_(), std::numeric_limits<double>::quiet_NaN());
}

void quantize_on_device(const at::Tensor& values, CodeBits bits, const DeviceRecord& record) {
  const auto blocks = blocks_of(values);
  const auto scales = scales_of(blocks, bits);
  record.scales.copy_(scales);
  const auto inverse = scales.reciprocal().masked_fill_(scales.gt(0.0).logical_not_(), 0.0);
  const auto numbers = blocks.mul(inverse).add_(kCodeRounder).view(at::kInt);  // codes are the lowest bits
  if (bits == CodeBits::k8) {
    record.codes.copy_(numbers.bitwise_and_(255));
    return;
  }
  constexpr auto kNibbles = kQuantizedBlock / 2;
  const auto nibbles = numbers.bitwise_and_(15);
  record.codes.copy_(nibbles.narrow(1, 0, kNibbles).add(nibbles.narrow(1, kNibbles, kNibbles), 16));
}

// Flat.
at::Tensor dequantize_on_device(const DeviceRecord& record, std::int64_t elements, CodeBits bits) {
  at::Tensor numbers;
  if (bits == CodeBits::k8) {
    numbers = record.codes.view(at::kChar).to(at::kFloat);
  } else {
    const auto bytes = record.codes.to(at::kInt);
    numbers = at::cat({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, 1);
    numbers = numbers.bitwise_xor_(8).sub_(8).to(at::kFloat);
  }
  return numbers.mul_(record.scales).view({-1}).narrow(0, 0, elements);
}

}  // namespace

std::int64_t RecordFormat::bytes() const {
  return code_bytes(elements_, bits_) + block_count(elements_) * static_cast<std::int64_t>(sizeof(float));
}

void RecordFormat::write(const at::Tensor& values, const at::Tensor& record) const {
  if (!record.is_cpu()) return write_part(values.to(at::kFloat), record, 0);
  for_each_tile(elements_, [&](std::int64_t begin, std::int64_t count) {
    write_part(values.narrow(0, begin, count).to(at::kFloat), record, begin);  // itself where it is that
  });
}

void RecordFormat::write_part(const at::Tensor& values, const at::Tensor& record, std::int64_t begin) const {
  if (values.numel() == 0) return;
  const auto place = place_in(record, elements_, bits_, begin);
  if (record.is_cpu())
    quantize(values.const_data_ptr<float>(), values.numel(), bits_, place.codes, place.scales);
  else if (!quantize_by_kernel(values, bits_, place))
    quantize_on_device(values, bits_, part_in(record, elements_, bits_, begin, values.numel()));
}

void RecordFormat::read_part(const at::Tensor& record, std::int64_t begin, const at::Tensor& values) const {
  if (values.numel() == 0) return;
  const auto place = place_in(record, elements_, bits_, begin);
  if (record.is_cpu())
    dequantize(place.codes, place.scales, values.numel(), bits_, values.mutable_data_ptr<float>());
  else if (!dequantize_by_kernel(place, bits_, values, /*adds=*/false))
    values.copy_(dequantize_on_device(part_in(record, elements_, bits_, begin, values.numel()),
                                      values.numel(), bits_));
}

void RecordFormat::read(const at::Tensor& record, const at::Tensor& values) const {
  if (!record.is_cpu()) return read_part(record, 0, values);
  const bool is_float = values.scalar_type() == at::kFloat;
  for_each_tile(elements_, [&](std::int64_t begin, std::int64_t count) {
    const auto target = values.narrow(0, begin, count);
    const auto tile = is_float ? target : at::empty({count}, at::kFloat);
    read_part(record, begin, tile);
    if (!is_float) target.copy_(tile);
  });
}

void RecordFormat::read_all(const at::Tensor& records, const at::Tensor& values) const {
  for (std::int64_t i = 0; i * bytes() < records.numel(); ++i)
    read(records.narrow(0, i * bytes(), bytes()), values.narrow(0, i * elements_, elements_));
}

void RecordFormat::add(const at::Tensor& record, const at::Tensor& sums) const {
  if (elements_ == 0) return;
  const auto place = place_in(record, elements_, bits_, 0);
  if (record.is_cpu())
    add_dequantized(place.codes, place.scales, elements_, bits_, sums.mutable_data_ptr<float>());
  else if (!dequantize_by_kernel(place, bits_, sums, /*adds=*/true))
    sums.add_(dequantize_on_device(part_in(record, elements_, bits_, 0, elements_), elements_, bits_));
}

}  // namespace lockstep::detail
