#include <lockstep/formats/pickle.h>

#include "formats/torch_dtypes.h"

namespace lockstep::pickle {
namespace {

constexpr Global kGlobals[] = {
    {"collections.OrderedDict", Meaning::kDict},
    {"collections.Counter", Meaning::kFirstArgument},
    {"collections.defaultdict", Meaning::kDefaultDict},
    {"collections.deque", Meaning::kDeque},
    {"argparse.Namespace", Meaning::kRecord},
    {"lightning.fabric.utilities.data.AttributeDict", Meaning::kRecord},
    {"lightning.pytorch.utilities.parsing.AttributeDict", Meaning::kRecord},
    {"lightning_fabric.utilities.data.AttributeDict", Meaning::kRecord},
    {"pytorch_lightning.utilities.parsing.AttributeDict", Meaning::kRecord},
    {"builtins.set", Meaning::kFirstArgument},
    {"builtins.frozenset", Meaning::kFirstArgument},
    {"builtins.bytearray", Meaning::kBytes},
    {"builtins.bytes", Meaning::kBytes},
    {"_codecs.encode", Meaning::kBytes},
    {"pathlib.PosixPath", Meaning::kArguments},
    {"pathlib.PurePosixPath", Meaning::kArguments},
    {"pathlib._local.PosixPath", Meaning::kArguments},
    {"pathlib._local.PurePosixPath", Meaning::kArguments},
    {"torch.Size", Meaning::kFirstArgument},
    {"torch.device", Meaning::kDevice},
    {"torch.serialization._get_layout", Meaning::kFirstArgument},
    {"torch._utils._rebuild_tensor_v2", Meaning::kTensor},
    {"torch._utils._rebuild_tensor_v3", Meaning::kTensorWithDtype},
    {"torch._tensor._rebuild_from_type", Meaning::kTensorOfType},
    {"torch._tensor._rebuild_from_type_v2", Meaning::kTensorOfType},
    {"torch._utils._rebuild_device_tensor_from_cpu_tensor", Meaning::kFirstArgument},
    {"torch._utils._rebuild_qtensor", Meaning::kForeign, {}, "a quantised tensor"},
    {"torch._utils._rebuild_sparse_tensor", Meaning::kForeign, {}, "a sparse tensor"},
    {"torch._utils._rebuild_sparse_csr_tensor", Meaning::kForeign, {}, "a sparse tensor"},
    {"torch._utils._rebuild_nested_tensor", Meaning::kForeign, {}, "a nested tensor"},
    {"torch.nested._internal.nested_tensor._rebuild_njt", Meaning::kForeign, {}, "a nested tensor"},
    {"torch._utils._rebuild_wrapper_subclass", Meaning::kForeign, {}, "a tensor of a class of its own"},
    {"torch._utils._rebuild_meta_tensor_no_storage",
     Meaning::kForeign,
     {},
     "a meta tensor, which has no bytes"},
    {"torch.QInt8Storage", Meaning::kStorage, Dtype::kI8},
    {"torch.QUInt8Storage", Meaning::kStorage, Dtype::kU8},
    {"torch.QInt32Storage", Meaning::kStorage, Dtype::kI32},
    {"torch.Tensor", Meaning::kName},
    {"torch._utils._rebuild_parameter", Meaning::kFirstArgument},
    {"torch._utils._rebuild_parameter_with_state", Meaning::kFirstArgument},
    {"torch.storage.UntypedStorage", Meaning::kStorage},
    {"deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler", Meaning::kRecord},
    {"deepspeed.runtime.fp16.loss_scaler.LossScaleConfig", Meaning::kRecord},
    {"deepspeed.runtime.fp16.loss_scaler.LossScaleProfile", Meaning::kFirstArgument},
    {"deepspeed.runtime.fp16.loss_scaler.LossScaler", Meaning::kRecord},
    {"deepspeed.runtime.zero.config.ZeroStageEnum", Meaning::kFirstArgument},
    {"deepspeed.utils.tensor_fragment.fragment_address", Meaning::kRecord},
};

std::vector<Global> make_table() {
  std::vector<Global> table(std::begin(kGlobals), std::end(kGlobals));
  for (const auto& row : lockstep::detail::torch_dtypes()) {
    table.push_back({.name = row.name});
    if (!row.storage.empty()) table.push_back({row.storage, Meaning::kStorage, row.dtype});
  }
  return table;
}

}  // namespace

std::span<const Global> torch_globals() {
  static const std::vector<Global> table = make_table();
  return table;
}

}  // namespace lockstep::pickle
