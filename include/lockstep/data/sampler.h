// Which samples a rank sees, in which order: index arithmetic on plain numbers.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// How the samplers order.
struct SamplerOptions {
  bool shuffle = true;     ///< permute anew each epoch
  std::uint64_t seed = 0;  ///< the permutation is that of seed + epoch; the same on all ranks
  bool drop_last = false;  ///< cut the tail instead of padding it (DistributedSampler only)
};

/// The numbers below `size` in random order: torch.randperm with a CPU generator of that seed.
LOCKSTEP_API std::vector<std::int64_t> random_permutation(std::int64_t size, std::uint64_t seed);

/// An order of your own, for LoaderOptions::sampler: PyTorch's Sampler. It says the order of all samples;
/// the loader deals them out to ranks, one by one, and leaves the order as it is.
class LOCKSTEP_API Sampler {
 public:
  virtual ~Sampler();
  /// Indices of an epoch; the same for each.
  virtual std::int64_t num_samples() const = 0;
  /// The indices of `epoch`, num_samples() of them; repeats are allowed. They must follow from the arguments
  /// alone, so that all ranks, and a run that goes on from a checkpoint, get the same. `seed` is the
  /// loader's.
  virtual std::vector<std::int64_t> indices(std::int64_t epoch, std::uint64_t seed) const = 0;
  /// Whether the indices are those of one rank, as DistributedSampler's: they are not dealt out then.
  virtual bool is_of_one_rank() const { return false; }
};

/// The same number of samples for each rank, for training: index for index what PyTorch's class gives
/// (torch.utils.data.DistributedSampler). The list is padded from its own start, or cut with drop_last,
/// to a multiple of the ranks; rank r takes the entries r, r + num_replicas, ... As LoaderOptions::sampler it
/// is told the epoch by the loader, and shuffles by its own seed.
class LOCKSTEP_API DistributedSampler : public Sampler {
 public:
  /// @throws ConfigError unless 0 <= rank < num_replicas and size >= 0
  DistributedSampler(std::int64_t size, int num_replicas, int rank, const SamplerOptions& options = {});

  /// Chooses the permutation. Epochs are counted from 0.
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }

  /// This rank's samples, in order. Takes time and memory in proportion to `size`.
  std::vector<std::int64_t> indices() const { return indices(epoch_, 0); }

  /// Samples of this rank and, on all ranks together, of the padded or cut list.
  std::int64_t num_samples() const override { return num_samples_; }
  /// Samples of all ranks together, repeated ones counted.
  std::int64_t total_size() const { return num_samples_ * num_replicas_; }

  /// Those of `epoch`; `seed` has no effect.
  std::vector<std::int64_t> indices(std::int64_t epoch, std::uint64_t seed) const override;
  bool is_of_one_rank() const override { return true; }

 private:
  std::int64_t size_;
  int num_replicas_;
  int rank_;
  SamplerOptions options_;
  std::int64_t num_samples_;
  std::int64_t epoch_ = 0;
};

/// Each sample exactly once over all ranks, for evaluation: rank r takes the entries r, r + num_replicas,
/// ...; ranks differ by at most one sample. Lightning's UnrepeatedDistributedSampler, with seed + epoch.
class LOCKSTEP_API UnrepeatedDistributedSampler : public Sampler {
 public:
  /// `options.drop_last` has no effect.
  /// @throws ConfigError unless 0 <= rank < num_replicas and size >= 0
  UnrepeatedDistributedSampler(std::int64_t size, int num_replicas, int rank,
                               const SamplerOptions& options = {});

  /// Chooses the permutation. Epochs are counted from 0.
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }

  /// This rank's samples, in order. Takes time and memory in proportion to `size`.
  std::vector<std::int64_t> indices() const { return indices(epoch_, 0); }

  /// Samples of this rank.
  std::int64_t num_samples() const override;

  /// Those of `epoch`; `seed` has no effect.
  std::vector<std::int64_t> indices(std::int64_t epoch, std::uint64_t seed) const override;
  bool is_of_one_rank() const override { return true; }

 private:
  std::int64_t size_;
  int num_replicas_;
  int rank_;
  SamplerOptions options_;
  std::int64_t epoch_ = 0;
};

namespace detail {

// The indices of one rank, of a sampler that is used up: torch::data::samplers::DistributedRandomSampler and
// its like.
template <class Source>
class ConsumedSampler final : public Sampler {
 public:
  explicit ConsumedSampler(Source source)
      : source_(std::move(source)), num_samples_(static_cast<std::int64_t>(indices(0, 0).size())) {}

  std::int64_t num_samples() const override { return num_samples_; }
  std::vector<std::int64_t> indices(std::int64_t epoch, std::uint64_t) const override {
    constexpr std::size_t kAtOnce = 4096;
    auto source = source_;
    source.set_epoch(static_cast<std::size_t>(epoch));
    source.reset(std::nullopt);
    std::vector<std::int64_t> all;
    while (const auto some = source.next(kAtOnce)) all.insert(all.end(), some->begin(), some->end());
    return all;
  }
  bool is_of_one_rank() const override { return true; }

 private:
  Source source_;
  std::int64_t num_samples_;
};

}  // namespace detail

/// LoaderOptions::sampler: none, a pointer to a Sampler, a sampler of this library by value, or one of
/// torch::data::samplers that divides the data among ranks: `DistributedRandomSampler(size, ranks, rank)`.
/// The latter is copied for each epoch.
class SamplerChoice {
 public:
  SamplerChoice() = default;
  SamplerChoice(std::nullptr_t) {}
  template <std::convertible_to<std::shared_ptr<const Sampler>> Pointer>
  SamplerChoice(Pointer pointer) : sampler_(std::move(pointer)) {}
  template <std::derived_from<Sampler> Own>
  SamplerChoice(Own own) : sampler_(std::make_shared<const Own>(std::move(own))) {}
  template <class Source>
  requires requires(Source source) {
    source.set_epoch(std::size_t());
    source.reset(std::nullopt);
    { *source.next(std::size_t()) } -> std::convertible_to<std::vector<std::size_t>>;
  }
  SamplerChoice(Source source)
      : sampler_(std::make_shared<const detail::ConsumedSampler<Source>>(std::move(source))) {}

  /// Whether there is one.
  explicit operator bool() const { return sampler_ != nullptr; }
  /// The sampler, which must be there.
  const Sampler* operator->() const { return sampler_.get(); }

 private:
  std::shared_ptr<const Sampler> sampler_;
};

/// Batches of your own, for LoaderOptions::batch_sampler: PyTorch's batch_sampler. The loader deals them out
/// to ranks, batch by batch; where ranks need equal numbers, the first ones are repeated at the end.
class LOCKSTEP_API BatchSampler {
 public:
  virtual ~BatchSampler();
  /// Batches of an epoch; the same for each.
  virtual std::int64_t num_batches() const = 0;
  /// The indices of each batch of `epoch`, as Sampler::indices.
  virtual std::vector<std::vector<std::int64_t>> batches(std::int64_t epoch, std::uint64_t seed) const = 0;
};

}  // namespace lockstep
