// Blocks of numbers as small integers: how far they are off, and what must stay visible.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <lockstep/torch.h>

#include "parallel/sharded/block_quantizer.h"
#include "parallel/sharded/quantized_record.h"

namespace lockstep {
namespace {

using detail::CodeBits;
using detail::Isa;
using detail::kQuantizedBlock;

constexpr CodeBits kBothBits[] = {CodeBits::k4, CodeBits::k8};

struct Codes {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
};

Codes codes_of(const at::Tensor& values, CodeBits bits, Isa isa = detail::best_isa()) {
  const auto count = values.numel();
  Codes result{std::vector<std::uint8_t>(static_cast<std::size_t>(detail::code_bytes(count, bits))),
               std::vector<float>(static_cast<std::size_t>(detail::block_count(count)))};
  detail::quantize(values.const_data_ptr<float>(), count, bits, result.codes.data(), result.scales.data(),
                   isa);
  return result;
}

at::Tensor values_of(const Codes& codes, std::int64_t count, CodeBits bits, Isa isa = detail::best_isa()) {
  auto values = at::full({count}, 7.0F);
  detail::dequantize(codes.codes.data(), codes.scales.data(), count, bits, values.data_ptr<float>(), isa);
  return values;
}

at::Tensor there_and_back(const at::Tensor& values, CodeBits bits) {
  return values_of(codes_of(values, bits), values.numel(), bits);
}

at::Tensor waves(std::int64_t count) {
  return at::arange(count, at::kFloat).mul(0.731).sin().mul(at::arange(count, at::kFloat).add(1).rsqrt());
}

TEST(BlockQuantizer, IsOffByHalfAScaleAtMost) {
  for (const auto bits : kBothBits) {
    for (const std::int64_t count : {1, 3, 127, 128, 129, 255, 256, 257, 1000, 4096, 70001}) {
      const auto values = waves(count);
      const auto codes = codes_of(values, bits);
      const auto seen = values_of(codes, count, bits);
      for (std::int64_t block = 0; block < detail::block_count(count); ++block) {
        const auto begin = block * kQuantizedBlock, size = std::min(kQuantizedBlock, count - begin);
        const auto own = values.narrow(0, begin, size);
        const auto scale = codes.scales[static_cast<std::size_t>(block)];
        const float largest_code = bits == CodeBits::k8 ? 127.0F : 7.0F;
        EXPECT_FLOAT_EQ(scale, own.abs().max().item<float>() / largest_code);
        EXPECT_LE((own - seen.narrow(0, begin, size)).abs().max().item<float>(), 0.50002F * scale)
            << count << " elements, block " << block;
      }
    }
  }
}

TEST(BlockQuantizer, KeepsZerosSignsAndTheLargest) {
  for (const auto bits : kBothBits) {
    EXPECT_TRUE(there_and_back(at::zeros({300}), bits).equal(at::zeros({300})));
    EXPECT_TRUE(there_and_back(at::zeros({0}), bits).equal(at::zeros({0})));
    const auto two = at::tensor({-1.5F, 1.5F});
    EXPECT_TRUE(there_and_back(two, bits).allclose(two));
  }
}

// What one large number spoils ends with its block.
TEST(BlockQuantizer, AHugeElementSpoilsItsBlockOnly) {
  for (const auto bits : kBothBits) {
    auto values = at::ones({3 * kQuantizedBlock});
    values[kQuantizedBlock + 5] = 3e38F;
    const auto seen = there_and_back(values, bits);
    EXPECT_TRUE(seen.narrow(0, 0, kQuantizedBlock).allclose(at::ones({kQuantizedBlock})));
    EXPECT_TRUE(seen.narrow(0, 2 * kQuantizedBlock, kQuantizedBlock).allclose(at::ones({kQuantizedBlock})));
    EXPECT_FLOAT_EQ(seen[kQuantizedBlock + 5].item<float>(), 3e38F);
    EXPECT_EQ(seen[kQuantizedBlock + 6].item<float>(), 0.0F);
  }
}

TEST(BlockQuantizer, WhatIsNotFiniteStaysVisible) {
  for (const auto bits : kBothBits) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      for (const std::int64_t where : {0, 200, 256, 511, 512, 599}) {
        auto values = waves(600);
        values[where] = bad;
        const auto is_nan = there_and_back(values, bits).isnan();
        const auto block = where / kQuantizedBlock, begin = block * kQuantizedBlock;
        const auto size = std::min<std::int64_t>(kQuantizedBlock, 600 - begin);
        EXPECT_EQ(is_nan.sum().item<std::int64_t>(), size);
        EXPECT_TRUE(is_nan.narrow(0, begin, size).all().item<bool>());
      }
    }
  }
}

TEST(BlockQuantizer, TinyNumbersBecomeZerosOrKeepTheBound) {
  for (const auto bits : kBothBits) {
    for (const float tiny : {1e-45F, 1e-38F, 1e-36F, 2e-36F, 1e-30F}) {
      const auto seen = there_and_back(at::full({10}, tiny), bits);
      EXPECT_TRUE(seen.isfinite().all().item<bool>());
      EXPECT_LE((seen - tiny).abs().max().item<float>(), 1.2e-36F);
    }
  }
}

TEST(BlockQuantizer, GivesTheSameBitsByAllInstructionSets) {
  const auto values = waves(5000);
  for (const auto bits : kBothBits) {
    const auto expected = codes_of(values, bits, Isa::kBaseline);
    const auto seen = values_of(expected, 5000, bits, Isa::kBaseline);
    for (const auto isa : {Isa::kAvx2, Isa::kAvx512}) {
      if (isa > detail::best_isa()) continue;
      const auto codes = codes_of(values, bits, isa);
      EXPECT_EQ(codes.codes, expected.codes);
      EXPECT_EQ(codes.scales, expected.scales);
      EXPECT_TRUE(values_of(codes, 5000, bits, isa).equal(seen));
    }
  }
}

TEST(QuantizedRecord, TakesAByteOrHalfAByteAndASixtyFourth) {
  EXPECT_EQ(detail::RecordFormat(1024, CodeBits::k8).bytes(), 1024 + 16);
  EXPECT_EQ(detail::RecordFormat(1024, CodeBits::k4).bytes(), 512 + 16);
  EXPECT_EQ(detail::RecordFormat(1, CodeBits::k8).bytes(), 256 + 4);
}

TEST(QuantizedRecord, GivesTheSameNumbersInEveryType) {
  const std::int64_t count = 40000;  // several tiles
  const detail::RecordFormat format(count, CodeBits::k8);
  const auto record = at::empty({format.bytes()}, at::kByte);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    const auto values = waves(count).to(dtype);
    format.write(values, record);
    auto seen = at::empty({count}, dtype);
    format.read(record, seen);
    EXPECT_TRUE(seen.equal(there_and_back(values.to(at::kFloat), CodeBits::k8).to(dtype))) << dtype;
    auto sums = at::ones({count});
    format.add(record, sums);
    EXPECT_TRUE(sums.equal(there_and_back(values.to(at::kFloat), CodeBits::k8).add(1))) << dtype;
  }
}

TEST(QuantizedRecord, RecordsLieSideBySide) {
  const detail::RecordFormat format(1024, CodeBits::k4);
  const auto values = waves(3 * 1024);
  const auto records = at::empty({3 * format.bytes()}, at::kByte);
  for (std::int64_t i = 0; i < 3; ++i)
    format.write(values.narrow(0, i * 1024, 1024), records.narrow(0, i * format.bytes(), format.bytes()));
  auto seen = at::empty({3 * 1024});
  format.read_all(records, seen);
  EXPECT_TRUE(seen.equal(there_and_back(values, CodeBits::k4)));
}

}  // namespace
}  // namespace lockstep
