#include "parallel/sharded/quantized_record.h"

#include <algorithm>

#include <lockstep/torch.h>

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
  auto* const bytes = record.data_ptr<std::uint8_t>();
  auto* const scales = reinterpret_cast<float*>(bytes + code_bytes(elements, bits));
  return {bytes + code_bytes(begin, bits), scales + block_count(begin)};
}

}  // namespace

std::int64_t RecordFormat::bytes() const {
  return code_bytes(elements_, bits_) + block_count(elements_) * static_cast<std::int64_t>(sizeof(float));
}

void RecordFormat::write(const at::Tensor& values, const at::Tensor& record) const {
  for_each_tile(elements_, [&](std::int64_t begin, std::int64_t count) {
    write_part(values.narrow(0, begin, count).to(at::kFloat), record, begin);  // itself where it is that
  });
}

void RecordFormat::write_part(const at::Tensor& values, const at::Tensor& record, std::int64_t begin) const {
  const auto [codes, scales] = place_in(record, elements_, bits_, begin);
  quantize(values.const_data_ptr<float>(), values.numel(), bits_, codes, scales);
}

void RecordFormat::read_part(const at::Tensor& record, std::int64_t begin, const at::Tensor& values) const {
  const auto [codes, scales] = place_in(record, elements_, bits_, begin);
  dequantize(codes, scales, values.numel(), bits_, values.data_ptr<float>());
}

void RecordFormat::read(const at::Tensor& record, const at::Tensor& values) const {
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
  const auto [codes, scales] = place_in(record, elements_, bits_, 0);
  add_dequantized(codes, scales, elements_, bits_, sums.data_ptr<float>());
}

}  // namespace lockstep::detail
