#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/state/tensor_bytes.h>

namespace lockstep {
namespace {

TEST(TensorBytes, GoThereAndBackInEveryType) {
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                          at::kChar, at::kByte, at::kBool}) {
    const auto tensor = torch::arange(6).view({2, 3}).to(type);
    const auto view = view_of("x", tensor);
    const auto back = tensor_of(view);
    EXPECT_EQ(back.scalar_type(), type);
    EXPECT_TRUE(torch::equal(back, tensor)) << type;
    EXPECT_NE(back.const_data_ptr(), tensor.const_data_ptr());
  }
  EXPECT_EQ(tensor_of(view_of("empty", torch::empty({0, 3}))).sizes(), (std::vector<std::int64_t>{0, 3}));
  EXPECT_THROW(safetensors_dtype(at::kQInt8), CheckpointError);
}

TEST(TensorBytes, AreTheSameInTypesThatCannotCount) {
  const auto bytes = torch::arange(32, at::kByte).view({2, 16});
  for (const auto type : {at::kComplexHalf, at::kComplexFloat, at::kComplexDouble, at::kUInt16, at::kUInt32,
                          at::kUInt64, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz,
                          at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu, at::kFloat4_e2m1fn_x2}) {
    const auto tensor = bytes.view(type);
    const auto back = tensor_of(view_of("x", tensor));
    EXPECT_EQ(back.scalar_type(), type);
    EXPECT_EQ(back.sizes(), tensor.sizes());
    EXPECT_TRUE(torch::equal(back.view(at::kByte), bytes)) << type;
  }
}

TEST(TensorBytes, AreThoseOfTheValuesOfAView) {
  const auto numbers = torch::complex(torch::ones({2}), torch::ones({2}));
  const auto is = [](const at::Tensor& tensor, const at::Tensor& values) {
    return torch::equal(tensor_of(view_of("x", stored_form(tensor))), values);
  };
  EXPECT_TRUE(is(numbers.conj(), torch::complex(torch::ones({2}), -torch::ones({2}))));
  EXPECT_TRUE(is(at::imag(numbers.conj()), -torch::ones({2})));
  EXPECT_TRUE(is(torch::ones({1}).expand({3}), torch::ones({3})));
}

}  // namespace
}  // namespace lockstep
