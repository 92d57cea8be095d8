// Python's pickles of plain values and tensors, as torch.save writes them. A pickle is a program for a small
// machine; here only the instructions that build values are known, and only the names in a table. Nothing
// is imported, called or executed: what else a pickle builds is not read, and known by its name only.
// https://github.com/python/cpython/blob/3.13/Lib/pickletools.py
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/formats/safetensors.h>

namespace lockstep::pickle {

using safetensors::Dtype;
class Value;

/// Python's None.
struct None {
  friend bool operator==(None, None) = default;
};

/// A name that stands for itself, such as an element type: "torch.float32".
struct Name {
  std::string text;  ///< the name
  friend bool operator==(const Name&, const Name&) = default;
};

/// Python's bytes.
using Bytes = std::vector<std::byte>;
/// Python's list.
using List = std::vector<Value>;

/// Python's tuple.
struct Tuple {
  std::vector<Value> items;  ///< its items
  friend bool operator==(const Tuple&, const Tuple&) = default;
};

/// Keys and values, in order. Keys may be of any kind; one may occur twice.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;  ///< in the order of the file

  /// The last value under that key, or nullptr.
  LOCKSTEP_API const Value* find(std::string_view key) const;
  LOCKSTEP_API void set(std::string_view key, Value value);  ///< appends
  friend bool operator==(const Dict&, const Dict&) = default;
};

/// Memory that tensors share; its bytes lie outside the pickle, under `key`.
struct Storage {
  std::string key;             ///< the name of its file within the archive
  std::uint64_t bytes = 0;     ///< size of the storage
  std::optional<Dtype> dtype;  ///< none where the storage itself has no element type
  friend bool operator==(const Storage&, const Storage&) = default;
};

/// A value that is not read, of which nothing is kept: an object of a class of Python's, a class or a
/// function, a sparse tensor, an integer of more than 64 bits.
struct Foreign {
  std::string what;  ///< "omegaconf.dictconfig.DictConfig(...)", "a sparse tensor"; short, and can be printed
  friend bool operator==(const Foreign&, const Foreign&) = default;
};

/// Where a tensor lies in its storage. All in elements; nothing lies outside the storage. There may be more
/// elements than it has room for: those of expanded tensors lie in one place.
struct Tensor {
  std::shared_ptr<const Storage> storage;  ///< the elements
  Dtype dtype = Dtype::kF32;               ///< what an element is
  std::int64_t offset = 0;                 ///< elements of the storage before the first one
  std::vector<std::int64_t> shape;         ///< size of each dimension
  std::vector<std::int64_t> stride;        ///< elements between neighbours of each dimension
  bool is_conj = false;                    ///< its values are the conjugates of those in the storage
  bool is_neg = false;                     ///< its values are those in the storage with the other sign
  LOCKSTEP_API friend bool operator==(const Tensor&, const Tensor&);
};

/// One value. Copies share what is in it, which never changes.
class LOCKSTEP_API Value {
 public:
  Value() = default;
  Value(None) {}
  Value(bool value) : held_(value) {}
  Value(std::int64_t value) : held_(value) {}
  Value(double value) : held_(value) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::string text) : held_(std::make_shared<const std::string>(std::move(text))) {}
  Value(Bytes bytes) : held_(std::make_shared<const Bytes>(std::move(bytes))) {}
  Value(List list) : held_(std::make_shared<const List>(std::move(list))) {}
  Value(Tuple tuple) : held_(std::make_shared<const Tuple>(std::move(tuple))) {}
  Value(Dict dict) : held_(std::make_shared<const Dict>(std::move(dict))) {}
  Value(Foreign foreign) : held_(std::make_shared<const Foreign>(std::move(foreign))) {}
  Value(Name name) : held_(std::make_shared<const Name>(std::move(name))) {}
  Value(Storage storage) : held_(std::make_shared<const Storage>(std::move(storage))) {}
  Value(Tensor tensor) : held_(std::make_shared<const Tensor>(std::move(tensor))) {}
  template <class T>
  Value(std::shared_ptr<const T> shared) : held_(std::move(shared)) {}

  /// What it holds, if that is a T (None, bool, std::int64_t, double, std::string, Bytes, List, Tuple, Dict,
  /// Name, Storage, Tensor or Foreign), else nullptr. Lives as long as some copy of this value.
  template <class T>
  const T* as() const;
  /// The same, in a pointer that owns it; not for None, bool and numbers.
  template <class T>
  std::shared_ptr<const T> shared() const;

  /// "None", "bool", "int", "float", "str", "bytes", "list", "tuple", "dict", "name", "storage", "tensor",
  /// "foreign".
  std::string_view kind() const;

  /// Whether they hold the same, wherever it lies.
  LOCKSTEP_API friend bool operator==(const Value& a, const Value& b);

 private:
  template <class T>
  using Shared = std::shared_ptr<const T>;
  std::variant<None, bool, std::int64_t, double, Shared<std::string>, Shared<Bytes>, Shared<List>,
               Shared<Tuple>, Shared<Dict>, Shared<Name>, Shared<Storage>, Shared<Tensor>, Shared<Foreign>>
      held_;
};

/// What a pickle makes of a name from Python.
enum class Meaning {
  kName,             ///< itself
  kDict,             ///< called without arguments: a dict; attributes set later are dropped
  kDefaultDict,      ///< the same, also called with what makes its values
  kDeque,            ///< called with nothing in it: a list
  kRecord,           ///< made without arguments: a dict of the attributes set later
  kFirstArgument,    ///< called: its one argument
  kArguments,        ///< called: a tuple of its arguments
  kDevice,           ///< called: "cpu", "cuda:0"
  kBytes,            ///< called with bytes, or with text to be encoded in Latin-1
  kStorage,          ///< the type of a storage of that element type; none: of bytes
  kTensor,           ///< torch._utils._rebuild_tensor_v2
  kTensorWithDtype,  ///< torch._utils._rebuild_tensor_v3
  kTensorOfType,  ///< torch._tensor._rebuild_from_type_v2: what the function that it names gives; attributes
                  ///< are dropped
  kForeign        ///< called: what is not read, as if the name were none of the table
};

/// A name that a pickle may use.
struct Global {
  std::string_view name;             ///< with its module: "collections.OrderedDict"
  Meaning meaning = Meaning::kName;  ///< what it stands for
  std::optional<Dtype> dtype = {};   ///< for a type of elements
  std::string_view what = {};        ///< of kForeign, instead of the name
};

/// The names in checkpoints of PyTorch, Lightning and DeepSpeed: tensors, containers, element types, devices,
/// paths, and DeepSpeed's records of plain values.
LOCKSTEP_API std::span<const Global> torch_globals();

/// What a pickle holds.
struct Document {
  Value root;                                            ///< the object at the top
  std::vector<std::shared_ptr<const Storage>> storages;  ///< each once, in the order of its first use
};

/// Deepest nesting that is read.
inline constexpr int kMaxDepth = 1000;

/// Reads a pickle of protocol 2 to 5; what its names mean is looked up in `globals`, and what others make is
/// Foreign. Strict: an instruction that is not known, a container that holds itself, or bytes behind the end
/// are refused. Memory and time, also for a walk over the whole value, are proportional to the length of the
/// pickle, however it repeats itself. Never throws for bad input; the reason names the byte, and the name or
/// instruction.
LOCKSTEP_API Expected<Document> parse(std::span<const std::byte> pickle,
                                      std::span<const Global> globals = torch_globals());

/// The same of the pickle that `bytes` begin with, which are moved behind it: files of PyTorch before 1.6
/// hold several.
LOCKSTEP_API Expected<Document> parse_first(std::span<const std::byte>& bytes,
                                            std::span<const Global> globals = torch_globals());

/// `root` as a pickle of protocol 2 that torch.load accepts with weights_only=True. Storages are referred to
/// by their key.
/// @throws CheckpointError for a Name that is no element type, a Storage outside a tensor, a Foreign
LOCKSTEP_API std::string write(const Value& root);

template <class T>
const T* Value::as() const {
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, None>) {
    return std::get_if<T>(&held_);
  } else {
    const auto* held = std::get_if<Shared<T>>(&held_);
    return held == nullptr ? nullptr : held->get();
  }
}

template <class T>
std::shared_ptr<const T> Value::shared() const {
  const auto* held = std::get_if<Shared<T>>(&held_);
  return held == nullptr ? nullptr : *held;
}

}  // namespace lockstep::pickle
