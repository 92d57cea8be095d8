// The tensors that recorded operators use and give, by number.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>

#include "parallel/dispatch/tensor_keeper.h"

namespace lockstep::detail {

/// A tensor among the arguments of a recorded operator.
struct TapedTensor {
  std::optional<std::size_t> value;  ///< none: the tensor is undefined
  bool requires_grad = false;        ///< as it was then
};

/// A tensor that an operator gave is an inner value, which nothing keeps alive until it is made again. Any
/// other tensor is an outer value, which is kept.
class TapedValues {
 public:
  /// First run: operator number `by` uses `tensor`.
  TapedTensor use(const at::Tensor& tensor, std::size_t by);
  /// It gives `tensor`. None for an outer value, which it was given.
  std::optional<std::size_t> define(const at::Tensor& tensor, std::size_t by);
  /// Whether the memory of `tensor` is that of an outer value, which stays anyway.
  bool keeps(const at::Tensor& tensor) const;
  /// Whether a second run can repeat a write to `tensor`: not to a parameter, nor to memory that several
  /// outer values share.
  bool can_write(const at::Tensor& tensor) const;
  /// It is about to write to `tensor`, which it uses: an outer value in that memory is kept as it is now.
  void keep_before_write(const at::Tensor& tensor);
  /// Whether a second run may be given `tensor` itself, of which no operator has written a copy.
  bool can_give_itself(const at::Tensor& tensor) const;
  /// It is given `tensor` itself, which may change from run to run.
  void expect_changes(const TapedTensor& used, const at::Tensor& tensor);

  /// Second run, in the same order.
  at::Tensor get(const TapedTensor& used);
  void set(std::optional<std::size_t> value, const at::Tensor& tensor);
  /// Lets go of the value, if operator `by` was the last one to use it.
  void end_use(std::optional<std::size_t> value, std::size_t by);
  void forget() { again_.clear(); }

 private:
  struct Value {
    c10::weak_intrusive_ptr<c10::TensorImpl> identity;  // weak: keeps the address from being used again
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> memory;  // weak for the same reason
    KeptTensor outer = {};                                            // the tensor, or a copy of what it was
    std::int64_t version = 0;                                         // of the tensor
    bool is_copied = false;
    bool is_fixed = true;
    bool requires_grad = false;  // of what an operator writes to
    std::size_t last_use = 0;
  };

  std::size_t add(const at::Tensor& tensor, std::size_t by);
  void add_outer(const at::Tensor& tensor, std::size_t number);
  std::span<const std::size_t> outers_in_memory_of(const at::Tensor& tensor) const;
  static void check_unchanged(const Value& value);
  void keep_copy(Value& value);
  at::Tensor get_outer(const Value& value) const;

  std::vector<Value> values_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> numbers_;
  std::unordered_map<const c10::StorageImpl*, std::vector<std::size_t>> outers_;
  std::unordered_set<const c10::StorageImpl*> made_;  // memory that operators gave
  std::vector<at::Tensor> again_;
};

}  // namespace lockstep::detail
