// What the names that a pickle may use make of their arguments.
#include "formats/pickle_machine.h"

#include <algorithm>

#include <lockstep/formats/pickle.h>

#include "formats/file_text.h"
#include "formats/safetensors_header.h"

namespace lockstep::pickle::detail {
namespace {

using lockstep::detail::named_torch_dtype;
using Numbers = std::vector<std::int64_t>;

constexpr std::size_t kMaxDims = 64;  // as many as PyTorch's own reductions take

/// The argument number `index`, if it is a T.
template <class T>
const T* argument(const Tuple& arguments, std::size_t index) {
  return index < arguments.items.size() ? arguments.items[index].as<T>() : nullptr;
}

std::optional<Numbers> numbers(const Tuple* tuple) {
  Numbers result;
  if (tuple == nullptr || tuple->items.size() > kMaxDims) return std::nullopt;
  for (const auto& item : tuple->items) {
    const auto* number = item.as<std::int64_t>();
    if (number == nullptr || *number < 0) return std::nullopt;
    result.push_back(*number);
  }
  return result;
}

bool is_empty(const Tensor& tensor) { return std::ranges::find(tensor.shape, 0) != tensor.shape.end(); }

/// How many elements the tensor's storage has.
std::int64_t room_of(const Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.storage->bytes / dtype_bytes(tensor.dtype));
}

/// Why `tensor` does not lie in its storage, or an empty string.
std::string misfit(const Tensor& tensor) {
  if (tensor.shape.size() != tensor.stride.size()) return "has not as many strides as dimensions";
  std::int64_t elements = 1;
  std::int64_t last = tensor.offset;
  for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim) {
    std::int64_t step = 0;
    const std::int64_t extent = std::max<std::int64_t>(tensor.shape[dim], 1);  // PyTorch's rule for overflow
    const bool too_large = __builtin_mul_overflow(elements, extent, &elements) ||
                           __builtin_mul_overflow(extent - 1, tensor.stride[dim], &step) ||
                           __builtin_add_overflow(last, step, &last);
    if (too_large) return "has an impossible shape";
  }
  return is_empty(tensor) || last < room_of(tensor) ? "" : "reaches outside its storage";
}

/// Sets what the last argument says of how the tensor's values are used: {"conj": True, "neg": True}.
bool take_metadata(const Tuple& arguments, std::size_t index, Tensor& tensor) {
  if (arguments.items.size() <= index) return true;
  const auto* metadata = argument<Dict>(arguments, index);
  if (metadata == nullptr)
    return argument<None>(arguments, index) != nullptr && arguments.items.size() == index + 1;
  for (const auto& [key, value] : metadata->entries) {
    const auto* name = key.as<std::string>();
    const auto* flag = value.as<bool>();
    if (name == nullptr || flag == nullptr || (*name != "conj" && *name != "neg")) return false;
    (*name == "conj" ? tensor.is_conj : tensor.is_neg) = *flag;
  }
  return arguments.items.size() == index + 1;
}

Expected<Value> tensor_of(const Tuple& arguments, std::optional<Dtype> dtype, std::size_t metadata) {
  auto storage = arguments.items.empty() ? nullptr : arguments.items[0].shared<Storage>();
  const auto* offset = argument<std::int64_t>(arguments, 1);
  auto shape = numbers(argument<Tuple>(arguments, 2));
  auto stride = numbers(argument<Tuple>(arguments, 3));
  if (!storage || offset == nullptr || *offset < 0 || !shape || !stride)
    return Unexpected{"needs a storage, an offset, a shape and strides"};
  if (!dtype) return Unexpected{"needs the element type"};
  Tensor tensor{.storage = std::move(storage),
                .dtype = *dtype,
                .offset = *offset,
                .shape = std::move(*shape),
                .stride = std::move(*stride)};
  if (!take_metadata(arguments, metadata, tensor)) return Unexpected{"says more of a tensor than is known"};
  if (auto reason = misfit(tensor); !reason.empty())
    return Unexpected{"of storage " + lockstep::detail::in_quotes(tensor.storage->key) + " " + reason};
  // torch.load takes any place of a tensor without elements.
  if (is_empty(tensor)) tensor.offset = std::min(tensor.offset, room_of(tensor));
  return Value(std::move(tensor));
}

Expected<Value> typed_tensor(const Tuple& arguments) {
  const auto* storage = argument<Storage>(arguments, 0);
  return tensor_of(arguments, storage == nullptr ? std::nullopt : storage->dtype, 6);
}

Expected<Value> tensor_with_dtype(const Tuple& arguments) {
  const auto* name = argument<Name>(arguments, 6);
  return tensor_of(arguments, name == nullptr ? std::nullopt : named_torch_dtype(name->text), 7);
}

/// A tensor of a class: the function that makes one, the class, that function's arguments, the attributes.
Expected<Value> tensor_of_type(const Tuple& arguments, std::span<const Global> globals) {
  const auto* function = argument<Name>(arguments, 0);
  const auto* global = function == nullptr ? nullptr : find_global(globals, function->text);
  const bool makes_tensors = global != nullptr && (global->meaning == Meaning::kTensor ||
                                                   global->meaning == Meaning::kTensorWithDtype ||
                                                   global->meaning == Meaning::kForeign);
  if (makes_tensors && arguments.items.size() > 2) return call(*global, arguments.items[2], globals);
  return Unexpected{"needs a function that makes a tensor, and its arguments"};
}

/// A dict of a list of pairs, as Python 2 wrote an OrderedDict.
Expected<Value> dict_of(const Tuple& arguments) {
  const auto* pairs = argument<List>(arguments, 0);
  if (pairs == nullptr || arguments.items.size() != 1) return Unexpected{"needs a list of pairs"};
  Dict dict;
  for (const auto& pair : *pairs) {
    const auto* items = pair.as<List>();
    if (const auto* tuple = pair.as<Tuple>()) items = &tuple->items;
    if (items == nullptr || items->size() != 2) return Unexpected{"needs a list of pairs"};
    dict.entries.emplace_back(items->front(), items->back());
  }
  return Value(std::move(dict));
}

/// The code points of `text`, each as a byte, if all of them are in Latin-1.
std::optional<Bytes> latin1(std::string_view text) {
  Bytes bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first >= 0xC4) return std::nullopt;  // above U+00FF; the text is known to be UTF-8
    const bool two = first >= 0x80;
    bytes.push_back(static_cast<std::byte>(two ? (first & 0x03) << 6 | (text[++i] & 0x3F) : first));
  }
  return bytes;
}

Expected<Value> bytes_of(const Tuple& arguments) {
  if (arguments.items.empty()) return Value(Bytes{});
  if (argument<Bytes>(arguments, 0) != nullptr && arguments.items.size() == 1) return arguments.items[0];
  const auto* text = argument<std::string>(arguments, 0);
  const auto* encoding = argument<std::string>(arguments, 1);
  const bool known = encoding != nullptr && (*encoding == "latin1" || *encoding == "latin-1");
  auto bytes = text != nullptr && known ? latin1(*text) : std::nullopt;
  if (!bytes) return Unexpected{"needs bytes, or text in Latin-1"};
  return Value(std::move(*bytes));
}

Expected<Value> device_of(const Tuple& arguments) {
  const auto* type = argument<std::string>(arguments, 0);
  const auto* index = argument<std::int64_t>(arguments, 1);
  if (type == nullptr) return Unexpected{"needs the type of a device"};
  return Value(index == nullptr ? *type : *type + ":" + std::to_string(*index));
}

Expected<Value> made_by(const Global& global, const Value& tuple, std::span<const Global> globals) {
  const auto& arguments = *tuple.as<Tuple>();
  switch (global.meaning) {
    case Meaning::kFirstArgument:
      if (arguments.items.empty()) return Unexpected{"needs an argument"};
      return arguments.items[0];
    case Meaning::kArguments:
      return tuple;
    case Meaning::kDevice:
      return device_of(arguments);
    case Meaning::kBytes:
      return bytes_of(arguments);
    case Meaning::kTensor:
      return typed_tensor(arguments);
    case Meaning::kTensorWithDtype:
      return tensor_with_dtype(arguments);
    case Meaning::kTensorOfType:
      return tensor_of_type(arguments, globals);
    case Meaning::kForeign:
      return Value(Foreign{std::string(global.what)});
    case Meaning::kDict:
      return dict_of(arguments);
    case Meaning::kName:
    case Meaning::kDefaultDict:
    case Meaning::kDeque:
    case Meaning::kRecord:
    case Meaning::kStorage:
      break;
  }
  return Unexpected{"is not to be called with these arguments"};
}

}  // namespace

Expected<Value> call(const Global& global, const Value& tuple, std::span<const Global> globals) {
  const auto* arguments = tuple.as<Tuple>();
  if (arguments == nullptr) return Unexpected{"needs a tuple of arguments"};
  auto made = made_by(global, tuple, globals);
  if (made) return made;
  for (const auto& item : arguments->items)
    if (item.as<Foreign>() != nullptr) return item;
  return made;
}

const Global* find_global(std::span<const Global> globals, std::string_view name) {
  const auto found = std::ranges::find(globals, name, &Global::name);
  return found == globals.end() ? nullptr : &*found;
}

std::optional<std::string> foreign_storage(const Value& id) {
  const auto* parts = id.as<Tuple>();
  const auto* type = parts == nullptr ? nullptr : argument<Foreign>(*parts, 1);
  if (type == nullptr) return std::nullopt;
  const auto* tag = argument<std::string>(*parts, 0);
  const bool is_class =
      tag != nullptr && *tag == "module";  // files from before PyTorch 1.6 have these beside storages
  return (is_class ? "" : "a tensor of ") + type->what;
}

Expected<Storage> storage_of(const Value& id, std::span<const Global> globals) {
  const Tuple none;
  const auto* tuple = id.as<Tuple>();
  const auto& parts = tuple == nullptr ? none : *tuple;
  const auto* tag = argument<std::string>(parts, 0);
  const auto* type = argument<Name>(parts, 1);
  const auto* key = argument<std::string>(parts, 2);
  const auto* count = argument<std::int64_t>(parts, 4);
  const auto* global = type == nullptr ? nullptr : find_global(globals, type->text);
  // Files of PyTorch before 1.6 add the part of another storage that this one is: none, unless a very old
  // version wrote the file.
  const bool is_whole =
      parts.items.size() == 5 || (parts.items.size() == 6 && argument<None>(parts, 5) != nullptr);
  const bool usable = is_whole && tag != nullptr && *tag == "storage" && global != nullptr &&
                      global->meaning == Meaning::kStorage && key != nullptr && count != nullptr &&
                      *count >= 0;
  if (!usable) return Unexpected{"is none of a storage"};
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(*count),
                             global->dtype ? dtype_bytes(*global->dtype) : 1, &bytes))
    return Unexpected{"has an impossible size"};
  return Storage{.key = *key, .bytes = bytes, .dtype = global->dtype};
}

namespace {

constexpr std::size_t kMaxText = 200;   // names come from untrusted files, and may be repeated
constexpr std::size_t kMaxDigits = 64;  // bytes of an integer that is written out

/// The bytes of an integer below zero become those of its absolute value.
void negate(std::vector<unsigned>& bytes) {
  unsigned carry = 1;
  for (auto& byte : bytes) {
    byte = (~byte & 0xFF) + carry;
    carry = byte >> 8;
    byte &= 0xFF;
  }
}

std::string decimal(std::vector<unsigned> bytes) {
  const bool is_negative = bytes.back() >= 0x80;
  if (is_negative) negate(bytes);
  std::string digits;
  while (!bytes.empty()) {
    unsigned rest = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) {
      const unsigned part = rest << 8 | bytes[i];
      bytes[i] = part / 10;
      rest = part % 10;
    }
    digits.insert(digits.begin(), static_cast<char>('0' + rest));
    while (!bytes.empty() && bytes.back() == 0) bytes.pop_back();
  }
  return (is_negative ? "-" : "") + digits;
}

}  // namespace

std::string foreign_name(std::string_view name) {
  auto text = lockstep::detail::printable(name.substr(0, kMaxText));
  return name.size() > kMaxText ? text + "..." : text;
}

std::string foreign_call(std::string_view name, const Value& arguments) {
  const auto* tuple = arguments.as<Tuple>();
  const auto* of = tuple == nullptr || tuple->items.empty() ? nullptr : tuple->items[0].as<Foreign>();
  const bool fits = of != nullptr && name.size() + of->what.size() < kMaxText;
  return std::string(name) + "(" + (fits ? of->what + ", " : "") + "...)";
}

Value integer_of(std::span<const std::byte> bytes) {
  if (bytes.size() <= 8) {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) bits |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
    const int unused = bytes.empty() ? 0 : 64 - 8 * static_cast<int>(bytes.size());
    return static_cast<std::int64_t>(bits << unused) >> unused;  // extends the sign
  }
  if (bytes.size() > kMaxDigits)
    return Foreign{"an integer of " + std::to_string(8 * bytes.size()) + " bits"};
  std::vector<unsigned> values;
  for (const auto byte : bytes) values.push_back(std::to_integer<unsigned>(byte));
  return Foreign{"the integer " + decimal(std::move(values)) + ", which has more than 64 bits"};
}

}  // namespace lockstep::pickle::detail

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
