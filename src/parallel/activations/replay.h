// Running operators a second time: the state that they depend on besides their arguments, and the tensors
// that are recomputed.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace lockstep::detail {

/// States of generators of random numbers: of one, or of those that operators use by default.
struct GeneratorState {
  at::Tensor state = {};      ///< of the one, or the CPU's
  at::Tensor of_device = {};  ///< of the default one of the device that is in use, unless that is the CPU

  bool defined() const { return state.defined(); }
};

/// A copy. No generator: the default ones.
GeneratorState generator_state(const at::Generator& generator = {});
void set_generator_state(const GeneratorState& state, const at::Generator& generator = {});

/// This thread's autocast on the kind of device that is in use.
struct AutocastState {
  bool is_enabled = false;
  bool is_cache_enabled = false;
  at::ScalarType dtype = at::kBFloat16;

  static AutocastState now();
  void set() const;
};

/// Restores the generator and autocast at its end. Meanwhile casts are not cached: autocast would reuse them
/// in the next step, after the weights have changed.
class ScopedRunState {
 public:
  ScopedRunState();
  ~ScopedRunState();
  ScopedRunState(const ScopedRunState&) = delete;
  ScopedRunState& operator=(const ScopedRunState&) = delete;

  /// Sets autocast as it was in the first run.
  static void enter(AutocastState then);

 private:
  GeneratorState generator_;
  AutocastState autocast_;
};

}  // namespace lockstep::detail

namespace c10 {
class OperatorHandle;
}

namespace lockstep::detail {

struct ReplayInfo {
  bool can_replay = true;        ///< false for collectives, in which other ranks would have to take part
  bool has_effect = true;        ///< returns tensors or writes to some
  bool is_defined = true;        ///< its results depend on its arguments alone; not those of empty_like()
  bool draws = false;            ///< may draw random numbers
  std::uint64_t statistics = 0;  ///< bit i: argument i, of the first 64, is a running mean or variance, which
                                 ///< batch normalisation writes to though its schema does not say so
};

/// Cached per thread and operator.
const ReplayInfo& replay_info(const c10::OperatorHandle& op);

/// The properties of a tensor that was not saved.
struct LeftOutTensor {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype;
  std::optional<std::uint64_t> checksum = {};  ///< of its bytes, where those are compared
};

/// Numbers the tensors of the first run from 0 on, and returns those of the second run by these numbers.
class LeftOutTensors {
 public:
  /// With `compares_bytes` both runs must give the same bytes, not just tensors of the same kind.
  explicit LeftOutTensors(bool compares_bytes) : compares_bytes_(compares_bytes) {}

  /// First run: the tensor's number.
  std::size_t leave_out(const at::Tensor& tensor);
  std::size_t size() const { return left_out_.size(); }

  /// Second run: the next tensors have the numbers from `number` on.
  void continue_at(std::size_t number) { next_ = number; }
  /// @throws Error if the first run had given another one
  void keep(const at::Tensor& tensor);
  /// Both runs: the operator that gave the latest ones is done; it may have written to them until now.
  /// @throws Error if the second run's have other bytes than the first one's
  void end_operator();
  /// @throws Error if keep() was not called for exactly those before `number`
  void expect_next(std::size_t number) const;

  /// The tensor, if a second run has computed it and it was not taken since; otherwise undefined. It is
  /// removed by this call.
  at::Tensor take(std::size_t number);
  void forget() { again_.clear(); }

 private:
  bool compares_bytes_;
  std::vector<LeftOutTensor> left_out_;
  std::vector<std::pair<std::size_t, at::Tensor>> latest_;  // to be compared
  std::vector<at::Tensor> again_;
  std::size_t next_ = 0;
};

}  // namespace lockstep::detail
