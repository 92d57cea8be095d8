#include "formats/pickle_objects.h"

#include <algorithm>

#include "formats/in_quotes.h"
#include "formats/torch_dtypes.h"

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

/// Why `tensor` does not lie in its storage, or an empty string.
std::string misfit(const Tensor& tensor) {
  const auto room = static_cast<std::int64_t>(tensor.storage->bytes / dtype_bytes(tensor.dtype));
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
  if (std::ranges::find(tensor.shape, 0) != tensor.shape.end())
    return tensor.offset <= room ? "" : "starts outside its storage";
  if (last >= room) return "reaches outside its storage";
  if (elements > room) return "repeats elements of its storage (save its .contiguous())";
  return {};
}

/// Whether the tensor is to be conjugated or negated on use, which the last argument says.
bool is_transformed(const Tuple& arguments, std::size_t index) {
  const auto* metadata = argument<Dict>(arguments, index);
  return arguments.items.size() > index + 1 || (metadata != nullptr && !metadata->entries.empty());
}

Expected<Value> tensor_of(const Tuple& arguments, std::optional<Dtype> dtype, std::size_t metadata) {
  auto storage = arguments.items.empty() ? nullptr : arguments.items[0].shared<Storage>();
  const auto* offset = argument<std::int64_t>(arguments, 1);
  auto shape = numbers(argument<Tuple>(arguments, 2));
  auto stride = numbers(argument<Tuple>(arguments, 3));
  if (!storage || offset == nullptr || *offset < 0 || !shape || !stride)
    return Unexpected{"needs a storage, an offset, a shape and strides"};
  if (!dtype) return Unexpected{"needs the element type"};
  if (is_transformed(arguments, metadata)) return Unexpected{"is of a conjugate or negated view"};
  Tensor tensor{.storage = std::move(storage),
                .dtype = *dtype,
                .offset = *offset,
                .shape = std::move(*shape),
                .stride = std::move(*stride)};
  if (auto reason = misfit(tensor); !reason.empty())
    return Unexpected{"of storage " + lockstep::detail::in_quotes(tensor.storage->key) + " " + reason};
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
Expected<Value> tensor_of_type(const Tuple& arguments) {
  const auto* function = argument<Name>(arguments, 0);
  const auto* inner = argument<Tuple>(arguments, 2);
  if (function != nullptr && inner != nullptr && function->text == "torch._utils._rebuild_tensor_v2")
    return typed_tensor(*inner);
  if (function != nullptr && inner != nullptr && function->text == "torch._utils._rebuild_tensor_v3")
    return tensor_with_dtype(*inner);
  return Unexpected{"needs a function that makes a tensor, and its arguments"};
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

}  // namespace

Expected<Value> call(const Global& global, const Value& tuple) {
  if (tuple.as<Tuple>() == nullptr) return Unexpected{"needs a tuple of arguments"};
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
      return tensor_of_type(arguments);
    case Meaning::kName:
    case Meaning::kDict:
    case Meaning::kRecord:
    case Meaning::kStorage:
      break;
  }
  return Unexpected{"is not to be called with these arguments"};
}

const Global* find_global(std::span<const Global> globals, std::string_view name) {
  const auto found = std::ranges::find(globals, name, &Global::name);
  return found == globals.end() ? nullptr : &*found;
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
  // Files of PyTorch before 1.6 add what part of another storage it is: none, unless a very old version wrote it.
  const bool is_whole = parts.items.size() == 5 || (parts.items.size() == 6 && argument<None>(parts, 5) != nullptr);
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

}  // namespace lockstep::pickle::detail
