// Loaders without their batch type: what loops that are compiled once need of them; and the tensors of a
// batch of any type.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/data/dataset.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

/// The batch with what `change` makes of each of its tensors; an undefined one stays so. For a batch type of
/// your own, put a function of this name beside it: without one, its tensors are left as they are. Vectors,
/// pairs, tuples, variants and optionals of batches need none.
LOCKSTEP_API at::Tensor with_tensors(const at::Tensor& batch, const TensorChange& change);
/// The batch with each tensor replaced by what `change` makes of it.
LOCKSTEP_API Example with_tensors(const Example& batch, const TensorChange& change);

namespace detail {

template <class Batch>
struct BatchTensors {
  static Batch changed(const Batch& batch, const TensorChange& change) {
    if constexpr (requires {
                    { with_tensors(batch, change) } -> std::same_as<Batch>;
                  }) {
      return with_tensors(batch, change);
    } else {
      return batch;
    }
  }
};

template <class Batch>
Batch with_changed_tensors(const Batch& batch, const TensorChange& change) {
  return BatchTensors<Batch>::changed(batch, change);
}

template <class Batch>
struct BatchTensors<std::vector<Batch>> {
  static std::vector<Batch> changed(const std::vector<Batch>& batches, const TensorChange& change) {
    std::vector<Batch> result;
    result.reserve(batches.size());
    for (const auto& batch : batches) result.push_back(with_changed_tensors(batch, change));
    return result;
  }
};

template <class Batch>
struct BatchTensors<std::optional<Batch>> {
  static std::optional<Batch> changed(const std::optional<Batch>& batch, const TensorChange& change) {
    return batch ? std::optional(with_changed_tensors(*batch, change)) : std::nullopt;
  }
};

template <class First, class Second>
struct BatchTensors<std::pair<First, Second>> {
  static std::pair<First, Second> changed(const std::pair<First, Second>& batch, const TensorChange& change) {
    return {with_changed_tensors(batch.first, change), with_changed_tensors(batch.second, change)};
  }
};

template <class... Batches>
struct BatchTensors<std::variant<Batches...>> {
  using Variant = std::variant<Batches...>;
  static Variant changed(const Variant& batch, const TensorChange& change) {
    return std::visit(
        [&]<class Held>(const Held& held) {
          return Variant(std::in_place_type<Held>, with_changed_tensors(held, change));
        },
        batch);
  }
};

template <class... Batches>
struct BatchTensors<std::tuple<Batches...>> {
  static std::tuple<Batches...> changed(const std::tuple<Batches...>& batch, const TensorChange& change) {
    return std::apply(
        [&](const auto&... parts) { return std::tuple<Batches...>{with_changed_tensors(parts, change)...}; },
        batch);
  }
};

[[noreturn]] LOCKSTEP_API void throw_wrong_batch_type(const std::type_info* held,
                                                      const std::type_info& asked);
}  // namespace detail

/// One batch whose type only the module knows. Copies share the batch.
class LOCKSTEP_API AnyBatch {
 public:
  AnyBatch() = default;
  /// `size`: samples in the batch.
  template <class Batch>
  AnyBatch(std::shared_ptr<const Batch> value, std::int64_t size)
      : value_(std::move(value)), type_(&typeid(Batch)), size_(size), change_(&changed<Batch>) {}

  /// The batch; valid as long as a copy of this object.
  /// @throws ConfigError naming both types when it is not a Batch
  template <class Batch>
  const Batch& get() const {
    if (!type_ || *type_ != typeid(Batch)) detail::throw_wrong_batch_type(type_, typeid(Batch));
    return *static_cast<const Batch*>(value_.get());
  }

  /// Samples in the batch.
  std::int64_t size() const { return size_; }
  /// Whether this object holds no batch.
  bool empty() const { return type_ == nullptr; }
  /// The numbers of its samples in the data set, in order; empty where it is not made of numbered ones, as
  /// those of streams and of combined loaders. Valid as long as a copy of this object.
  std::span<const std::int64_t> indices() const { return {indices_.get(), num_indices_}; }
  /// For loaders: sets the `count` indices that begin at `first`.
  void set_indices(std::shared_ptr<const std::int64_t> first, std::size_t count) {
    indices_ = std::move(first);
    num_indices_ = count;
  }
  /// Takes the indices of `other`, from which this batch was made.
  void set_indices(const AnyBatch& other) {
    indices_ = other.indices_;
    num_indices_ = other.num_indices_;
  }

  /// The batch with what `change` makes of each of its tensors; this one when it makes
  /// nothing else of them.
  AnyBatch with_tensors(const TensorChange& change) const { return change_ ? change_(*this, change) : *this; }

 private:
  using Change = AnyBatch (*)(const AnyBatch&, const TensorChange&);

  template <class Batch>
  static AnyBatch changed(const AnyBatch& from, const TensorChange& change) {
    if constexpr (std::is_copy_constructible_v<Batch>) {
      bool differs = false;
      auto batch = detail::with_changed_tensors(from.get<Batch>(), [&](const at::Tensor& tensor) {
        auto made = change(tensor);
        differs = differs || !made.is_same(tensor);
        return made;
      });
      if (!differs) return from;
      AnyBatch made(std::make_shared<const Batch>(std::move(batch)), from.size_);
      made.set_indices(from);
      return made;
    }
    return from;
  }

  std::shared_ptr<const void> value_;
  const std::type_info* type_ = nullptr;
  std::int64_t size_ = 0;
  Change change_ = nullptr;
  std::shared_ptr<const std::int64_t> indices_;
  std::size_t num_indices_ = 0;
};

/// The number of batches or samples where it is known only after reading all of them: larger than any real
/// number, and small enough that sums of it do not overflow.
inline constexpr std::int64_t kUnknownLength = std::int64_t{1} << 62;

/// Which part of the data a rank gets: what the strategy tells a loader before the first epoch.
struct ShardSpec {
  int num_replicas = 1;    ///< ranks that share the data
  int rank = 0;            ///< this one among them
  bool pad = true;         ///< the same number of samples for each rank (training); false: each sample once
  std::uint64_t seed = 0;  ///< of shuffling, unless the loader has one of its own; the same on all ranks
  bool in_order = false;   ///< no shuffling, whatever the loader says
};

/// The batches of one epoch, once through.
class LOCKSTEP_API BatchStream {
 public:
  virtual ~BatchStream() = default;
  /// Sets `batch` to the next one, in order; false at the end. Blocks until it is there. A batch that
  /// could not be made throws its error here, in its turn, and ends the stream.
  virtual bool next(AnyBatch& batch) = 0;
  /// Whether the batch that next() gave last is the last one, where the stream knows: look_ahead()'s do.
  virtual bool is_last() const { return false; }
};

/// The stream's batches, each with what `change` makes of its tensors; as they are where it is empty.
LOCKSTEP_API std::unique_ptr<BatchStream> with_tensors(std::unique_ptr<BatchStream> stream,
                                                       TensorChange change);

/// Makes the batches of any epoch, for any rank. Immutable: one object serves several streams.
class LOCKSTEP_API AnyLoader {
 public:
  virtual ~AnyLoader() = default;
  /// Batches of that rank per epoch, or kUnknownLength.
  virtual std::int64_t num_batches(const ShardSpec& spec) const = 0;
  /// Samples of the whole data set, or kUnknownLength.
  virtual std::int64_t num_samples() const = 0;
  /// Samples of a rank's batch, but for the last one of an epoch, which may be short.
  virtual std::int64_t batch_size() const = 0;
  /// Whether `spec` decides which part of the data a rank gets; false where a sampler of its own does.
  virtual bool is_dealt_out() const { return true; }
  /// The batches of that rank in `epoch` (from 0) without the first `skip_batches`, which are not read.
  /// Destroying the stream early is cheap: only batches being made are waited for.
  virtual std::unique_ptr<BatchStream> stream(const ShardSpec& spec, std::int64_t epoch,
                                              std::int64_t skip_batches = 0) const = 0;
};

/// Refuses data of which a rank would get nothing, with the same error on every rank, before anything
/// waits for it. For training (`spec.pad`) there must be a sample of its own for each rank, and a batch.
/// @throws DataError naming the sizes
LOCKSTEP_API void check_shards(const AnyLoader& loader, const ShardSpec& spec);

}  // namespace lockstep

namespace lockstep::detail {

/// Makes one batch, on any thread, beside others.
using BatchTask = std::function<AnyBatch()>;

/// Gives the tasks of one epoch's batches, in order.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// The next one; empty at the end. Called by one thread at a time; the tasks may outlive the source.
  virtual BatchTask next() = 0;
};

}  // namespace lockstep::detail
