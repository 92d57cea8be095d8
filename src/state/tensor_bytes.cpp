#include <lockstep/state/tensor_bytes.h>

#include <cstring>
#include <utility>

#include <ATen/ops/empty.h>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

using safetensors::Dtype;

constexpr std::pair<Dtype, at::ScalarType> kTypes[] = {{Dtype::kC64, at::kComplexFloat},
                                                       {Dtype::kF64, at::kDouble},
                                                       {Dtype::kF32, at::kFloat},
                                                       {Dtype::kF16, at::kHalf},
                                                       {Dtype::kBF16, at::kBFloat16},
                                                       {Dtype::kF8E4M3, at::kFloat8_e4m3fn},
                                                       {Dtype::kF8E5M2, at::kFloat8_e5m2},
                                                       {Dtype::kF8E8M0, at::kFloat8_e8m0fnu},
                                                       {Dtype::kI64, at::kLong},
                                                       {Dtype::kI32, at::kInt},
                                                       {Dtype::kI16, at::kShort},
                                                       {Dtype::kI8, at::kChar},
                                                       {Dtype::kU64, at::kUInt64},
                                                       {Dtype::kU32, at::kUInt32},
                                                       {Dtype::kU16, at::kUInt16},
                                                       {Dtype::kU8, at::kByte},
                                                       {Dtype::kBool, at::kBool},
                                                       {Dtype::kF4x2, at::kFloat4_e2m1fn_x2},
                                                       {Dtype::kC128, at::kComplexDouble},
                                                       {Dtype::kC32, at::kComplexHalf},
                                                       {Dtype::kF8E4M3FNUZ, at::kFloat8_e4m3fnuz},
                                                       {Dtype::kF8E5M2FNUZ, at::kFloat8_e5m2fnuz}};

}  // namespace

Dtype safetensors_dtype(at::ScalarType type) {
  for (const auto& [dtype, scalar] : kTypes) {
    if (scalar == type) return dtype;
  }
  throw CheckpointError("state",
                        {.what = "elements of such a type cannot be stored", .got = at::toString(type)});
}

at::ScalarType scalar_type(Dtype dtype) {
  for (const auto& [known, scalar] : kTypes) {
    if (known == dtype) return scalar;
  }
  return at::ScalarType::Undefined;
}

at::Tensor stored_form(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
}

safetensors::TensorView view_of(std::string name, const at::Tensor& tensor) {
  return {.name = std::move(name),
          .dtype = safetensors_dtype(tensor.scalar_type()),
          .shape = tensor.sizes().vec(),
          .bytes = {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

at::Tensor tensor_of(const safetensors::TensorView& view) {
  auto tensor = at::empty(view.shape, scalar_type(view.dtype));
  if (!view.bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
  return tensor;
}

}  // namespace lockstep
