// Writes pickles as torch.save does.
#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <ranges>

#include <lockstep/base/error.h>
#include <lockstep/formats/pickle.h>

#include "formats/file_text.h"
#include "formats/pickle_machine.h"
#include "formats/safetensors_header.h"

namespace lockstep::pickle {
namespace {

using detail::Op;
using lockstep::detail::torch_dtype;

/// Writes one pickle of protocol 2, without a memo: only storages are shared, by their keys.
class Pickler {
 public:
  std::string write(const Value& root) {
    put(Op::kProto, std::uint8_t{2});
    value(root);
    put(Op::kStop);
    return std::move(text_);
  }

 private:
  template <class... Numbers>
  void put(Op op, Numbers... numbers) {
    text_ += static_cast<char>(op);
    (text_.append(reinterpret_cast<const char*>(&numbers), sizeof(numbers)), ...);
  }

  void value(const Value& value) {
    if (value.as<None>() != nullptr) put(Op::kNone);
    if (const auto* flag = value.as<bool>()) put(*flag ? Op::kTrue : Op::kFalse);
    if (const auto* number = value.as<std::int64_t>()) integer(*number);
    if (const auto* number = value.as<double>())
      put(Op::kFloat, __builtin_bswap64(std::bit_cast<std::uint64_t>(*number)));
    if (const auto* string = value.as<std::string>()) text(*string);
    if (const auto* held = value.as<Bytes>()) bytes(*held);
    if (const auto* held = value.as<List>()) list(*held);
    if (const auto* held = value.as<Tuple>()) tuple(held->items);
    if (const auto* held = value.as<Dict>()) dict(*held);
    if (const auto* name = value.as<Name>()) dtype_name(*name);
    if (const auto* held = value.as<Tensor>()) tensor(*held);
    if (const auto* held = value.as<Foreign>()) refuse(held->what);
    if (value.as<Storage>() != nullptr) refuse("a storage outside a tensor");
  }

  [[noreturn]] static void refuse(const std::string& got) {
    throw CheckpointError("formats", {.what = "a pickle for torch.load cannot be written", .got = got});
  }

  void integer(std::int64_t value) {
    if (value >= std::numeric_limits<std::int32_t>::min() &&
        value <= std::numeric_limits<std::int32_t>::max()) {
      put(Op::kInt32, static_cast<std::int32_t>(value));
    } else {
      put(Op::kLong, std::uint8_t{sizeof(value)}, value);
    }
  }

  void text(std::string_view text) {
    if (text.size() > std::numeric_limits<std::uint32_t>::max()) refuse("a text of more than 4 GiB");
    put(Op::kText, static_cast<std::uint32_t>(text.size()));
    text_ += text;
  }

  /// Protocol 2 has no bytes: Python writes how to make them of text.
  void bytes(const Bytes& bytes) {
    std::string latin1;
    for (const auto byte : bytes) {
      const auto code = static_cast<unsigned char>(byte);
      if (code >= 0x80) latin1 += static_cast<char>(0xC0 | code >> 6);
      latin1 += static_cast<char>(code >= 0x80 ? 0x80 | (code & 0x3F) : code);
    }
    global("_codecs.encode");
    text(latin1);
    text("latin1");
    put(Op::kTuple2);
    put(Op::kReduce);
  }

  void list(const List& list) {
    put(Op::kEmptyList);
    put(Op::kMark);
    for (const auto& item : list) value(item);
    put(Op::kAppends);
  }

  template <class Items>
  void tuple(const Items& items) {
    put(Op::kMark);
    for (const auto& item : items) value(item);
    put(Op::kTuple);
  }

  void dict(const Dict& dict) {
    put(Op::kEmptyDict);
    put(Op::kMark);
    for (const auto& [key, held] : dict.entries) {
      value(key);
      value(held);
    }
    put(Op::kSetItems);
  }

  void global(std::string_view name) {
    const auto dot = name.rfind('.');
    put(Op::kGlobal);
    ((text_ += name.substr(0, dot)) += '\n');
    ((text_ += name.substr(dot + 1)) += '\n');
  }

  void dtype_name(const Name& name) {
    if (!lockstep::detail::named_torch_dtype(name.text))
      refuse("the name " + lockstep::detail::in_quotes(name.text));
    global(name.text);
  }

  /// ("storage", type, key, device, number of elements)
  void storage(const Storage& storage, std::string_view type) {
    const auto element = type.empty() ? 1 : dtype_bytes(*storage.dtype);
    put(Op::kMark);
    text("storage");
    global(type.empty() ? "torch.storage.UntypedStorage" : type);
    text(storage.key);
    text("cpu");
    integer(static_cast<std::int64_t>(storage.bytes / element));
    put(Op::kTuple);
    put(Op::kPersistentId);
  }

  /// A call of the function that PyTorch rebuilds tensors with: the newer one where the storage has not the
  /// tensor's element type.
  void tensor(const Tensor& tensor) {
    const auto& dtype = tensor.storage->dtype;
    const auto type = dtype ? torch_dtype(*dtype).storage : std::string_view();
    const bool is_typed = !type.empty() && dtype == tensor.dtype;
    global(is_typed ? "torch._utils._rebuild_tensor_v2" : "torch._utils._rebuild_tensor_v3");
    put(Op::kMark);
    storage(*tensor.storage, type);
    integer(tensor.offset);
    tuple(tensor.shape);
    tuple(tensor.stride);
    put(Op::kFalse);  // requires_grad
    global("collections.OrderedDict");
    put(Op::kEmptyTuple);
    put(Op::kReduce);  // hooks
    if (!is_typed) global(torch_dtype(tensor.dtype).name);
    if (tensor.is_conj || tensor.is_neg) dict({{{"conj", tensor.is_conj}, {"neg", tensor.is_neg}}});
    put(Op::kTuple);
    put(Op::kReduce);
  }

  std::string text_;
};

}  // namespace

std::string write(const Value& root) { return Pickler().write(root); }

const Value* Dict::find(std::string_view key) const {
  const auto is_key = [&](const auto& entry) {
    const auto* text = entry.first.template as<std::string>();
    return text != nullptr && *text == key;
  };
  const auto found = std::find_if(entries.rbegin(), entries.rend(), is_key);
  return found == entries.rend() ? nullptr : &found->second;
}

void Dict::set(std::string_view key, Value value) {
  entries.emplace_back(std::string(key), std::move(value));
}

bool operator==(const Tensor& a, const Tensor& b) {
  return *a.storage == *b.storage && a.dtype == b.dtype && a.offset == b.offset && a.shape == b.shape &&
         a.stride == b.stride && a.is_conj == b.is_conj && a.is_neg == b.is_neg;
}

std::string_view Value::kind() const {
  static constexpr std::string_view kKinds[] = {"None",    "bool",   "int",    "float", "str",
                                                "bytes",   "list",   "tuple",  "dict",  "name",
                                                "storage", "tensor", "foreign"};
  return kKinds[held_.index()];
}

bool operator==(const Value& a, const Value& b) {
  const auto same = [&]<class T>(const T& held) {
    const T& other = std::get<T>(b.held_);
    if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, None>) {
      return held == other;
    } else {
      return held == other || *held == *other;
    }
  };
  return a.held_.index() == b.held_.index() && std::visit(same, a.held_);
}

}  // namespace lockstep::pickle
