// Between the values of a pickle and StateTrees.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <lockstep/formats/torch_file.h>
#include <lockstep/state/state_tree.h>

namespace lockstep::detail {

/// Makes state of what a file of torch.save holds. The tensors do not refer to the file.
class StateOfPickle {
 public:
  /// `where` is the file, for errors. Both must outlive this.
  StateOfPickle(const torch_file::Contents& contents, const std::string& where)
      : contents_(contents), where_(where) {}

  /// What is not read, dicts within it with such keys among them, becomes StateTree::unread().
  /// @throws CheckpointError for keys that are neither text nor integers, or equal as text
  StateTree tree(const pickle::Dict& dict);
  StateValue value(const pickle::Value& value);
  /// Tensors of one storage share memory, except those whose values are not what lies there but conjugated, say.
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

/// Makes values for a file of torch.save out of state, which must live on while they are used.
class PickleOfState {
 public:
  pickle::Dict dict(const StateTree& tree);
  pickle::Value value(const StateValue& value);
  /// The storages of all tensors so far, each with its bytes.
  const std::vector<torch_file::StorageBytes>& storages() const { return storages_; }

 private:
  /// What makes two tensors the same one: address, element type, shape, strides, and whether signs are to be
  /// changed, or it is to be conjugated.
  using Identity =
      std::tuple<const void*, at::ScalarType, std::vector<std::int64_t>, std::vector<std::int64_t>, bool, bool>;

  pickle::Dict with_integer_keys(const StateTree& tree);
  pickle::Value tensor(const at::Tensor& tensor);
  pickle::Tensor store(const at::Tensor& tensor);

  std::map<Identity, pickle::Tensor> stored_;
  std::vector<at::Tensor> contiguous_;  // keeps the bytes alive
  std::vector<torch_file::StorageBytes> storages_;
};

}  // namespace lockstep::detail
