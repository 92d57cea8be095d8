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
  EXPECT_THROW(safetensors_dtype(at::kComplexFloat), CheckpointError);
}

}  // namespace
}  // namespace lockstep
