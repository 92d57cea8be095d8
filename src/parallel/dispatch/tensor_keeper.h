// Where tensors lie that are kept from forward to backward, and how a tensor lies in its storage.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep::detail {

struct LOCKSTEP_API TensorPlace {
  TensorPlace() = default;
  explicit TensorPlace(const at::Tensor& tensor);
  /// A tensor that lies in `memory` like that.
  at::Tensor in(const c10::Storage& memory) const;

  std::vector<std::int64_t> sizes = {}, strides = {};
  std::int64_t offset = 0;
  at::ScalarType dtype = at::kFloat;
};

/// A copy of a storage's bytes.
class KeptMemory {
 public:
  virtual ~KeptMemory() = default;
  /// The bytes, for as long as the storage lives; not to be written to.
  virtual c10::Storage storage() = 0;
};

/// A tensor, or what it takes to make one of the same content.
class KeptTensor {
 public:
  KeptTensor() = default;
  KeptTensor(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  KeptTensor(TensorPlace place, std::shared_ptr<KeptMemory> copy)
      : place_(std::move(place)), copy_(std::move(copy)) {}

  bool is_defined() const { return is_copy() || tensor_.defined(); }
  /// Whether the tensor itself is not kept.
  bool is_copy() const { return copy_ != nullptr; }
  /// The tensor itself, or one that autograd does not know.
  at::Tensor get() const { return is_copy() ? place_.in(copy_->storage()) : tensor_; }

 private:
  at::Tensor tensor_;
  TensorPlace place_;
  std::shared_ptr<KeptMemory> copy_;
};

class TensorKeeper {
 public:
  virtual ~TensorKeeper() = default;
  /// What to keep of `tensor`. May block. @throws IoError
  virtual KeptTensor keep(const at::Tensor& tensor) = 0;
};

/// This thread's, or null.
const std::shared_ptr<TensorKeeper>& tensor_keeper();

/// For what is kept from now on; a backward of this thread ends it. Null: tensors are kept as they are.
void set_tensor_keeper(const std::shared_ptr<TensorKeeper>& keeper);

/// What this thread's keeper keeps of `tensor`.
KeptTensor keep(const at::Tensor& tensor);

}  // namespace lockstep::detail
