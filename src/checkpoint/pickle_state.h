// Conversions between the values of a pickle and StateTrees.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <lockstep/formats/torch_file.h>
#include <lockstep/state/state_tree.h>

namespace lockstep::detail {

/// Makes StateTrees of the content of a file of torch.save. The tensors do not refer to the file.
class StateOfPickle {
 public:
  /// `where` names the file in errors. Both arguments must outlive this object.
  StateOfPickle(const torch_file::Contents& contents, const std::string& where)
      : contents_(contents), where_(where) {}

  /// Values that are not read become StateTree::unread(), among them dicts inside `dict` with keys that are
  /// neither text nor integers.
  /// @throws CheckpointError for keys that are neither text nor integers, or equal as text
  StateTree tree(const pickle::Dict& dict);
  StateValue value(const pickle::Value& value);
  /// Tensors of one storage share memory, except those that are, for example, conjugated views of it.
  at::Tensor tensor(const pickle::Tensor& tensor);

 private:
  template <class Items>
  StateList list(const Items& items);
  [[noreturn]] void refuse(const std::string& what, const std::string& got) const;
  StateTree named(const pickle::Dict& dict);

  const torch_file::Contents& contents_;
  const std::string& where_;
  std::unordered_map<std::string, at::Tensor> storages_;  // their bytes, by key
};

/// Makes values for a file of torch.save out of state, which must outlive them.
class PickleOfState {
 public:
  pickle::Dict dict(const StateTree& tree);
  pickle::Value value(const StateValue& value);
  /// The storages of all tensors so far, each with its bytes.
  const std::vector<torch_file::StorageBytes>& storages() const { return storages_; }

 private:
  /// What makes two tensors the same one: address, element type, shape, strides, and whether signs are to be
  /// changed, or it is to be conjugated.
  using Identity = std::tuple<const void*, at::ScalarType, std::vector<std::int64_t>,
                              std::vector<std::int64_t>, bool, bool>;

  pickle::Dict with_integer_keys(const StateTree& tree);
  pickle::Value tensor(const at::Tensor& tensor);
  pickle::Tensor store(const at::Tensor& tensor);

  std::map<Identity, pickle::Tensor> stored_;
  std::vector<at::Tensor> contiguous_;  // keeps the bytes alive
  std::vector<torch_file::StorageBytes> storages_;
};

}  // namespace lockstep::detail
