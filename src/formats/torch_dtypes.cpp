#include "formats/torch_dtypes.h"

#include <algorithm>

namespace lockstep::detail {
namespace {

using safetensors::Dtype;

constexpr TorchDtype kRows[] = {
    {Dtype::kC64, "torch.complex64", "torch.ComplexFloatStorage"},
    {Dtype::kF64, "torch.float64", "torch.DoubleStorage"},
    {Dtype::kF32, "torch.float32", "torch.FloatStorage"},
    {Dtype::kF16, "torch.float16", "torch.HalfStorage"},
    {Dtype::kBF16, "torch.bfloat16", "torch.BFloat16Storage"},
    {Dtype::kF8E4M3, "torch.float8_e4m3fn", ""},
    {Dtype::kF8E5M2, "torch.float8_e5m2", ""},
    {Dtype::kF8E8M0, "torch.float8_e8m0fnu", ""},
    {Dtype::kI64, "torch.int64", "torch.LongStorage"},
    {Dtype::kI32, "torch.int32", "torch.IntStorage"},
    {Dtype::kI16, "torch.int16", "torch.ShortStorage"},
    {Dtype::kI8, "torch.int8", "torch.CharStorage"},
    {Dtype::kU64, "torch.uint64", ""},
    {Dtype::kU32, "torch.uint32", ""},
    {Dtype::kU16, "torch.uint16", ""},
    {Dtype::kU8, "torch.uint8", "torch.ByteStorage"},
    {Dtype::kBool, "torch.bool", "torch.BoolStorage"},
    {Dtype::kF4x2, "torch.float4_e2m1fn_x2", ""},
    {Dtype::kC128, "torch.complex128", "torch.ComplexDoubleStorage"},
    {Dtype::kC32, "torch.complex32", ""},
    {Dtype::kF8E4M3FNUZ, "torch.float8_e4m3fnuz", ""},
    {Dtype::kF8E5M2FNUZ, "torch.float8_e5m2fnuz", ""},
};

}  // namespace

std::span<const TorchDtype> torch_dtypes() { return kRows; }

std::optional<Dtype> named_torch_dtype(std::string_view name) {
  const auto* row = std::ranges::find(kRows, name, &TorchDtype::name);
  return row == std::end(kRows) ? std::nullopt : std::optional(row->dtype);
}

const TorchDtype& torch_dtype(Dtype dtype) { return *std::ranges::find(kRows, dtype, &TorchDtype::dtype); }

}  // namespace lockstep::detail
