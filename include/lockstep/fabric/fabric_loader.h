// Loaders of ranks: one as Fabric::setup_loader() gives it, this rank's part of the data, epoch after epoch;
// and streams, on which ranks that train end together: look_ahead() over a communicator.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/data/loader.h>
#include <lockstep/data/look_ahead.h>

namespace lockstep {

/// How the data are shared out.
struct SetupLoaderOptions {
  bool use_distributed_sampler = true;  ///< false: every rank gets all of the data
  /// The same number of batches for each rank, as DistributedSampler gives it by repeating samples; training
  /// needs that. False, for evaluation: each sample once, ranks may differ by a sample.
  bool pad = true;
  /// Whether batches come on the rank's device, as far as their tensors are known (data/any_loader.h).
  bool move_to_device = true;
  /// What ranks do that train on streams of different lengths.
  UnevenStreams uneven_streams = UnevenStreams::kStopAtShortest;
};

/// `for (const auto& batch : loader)` goes through one epoch; the next such loop through the next one, with
/// an order of its own where the loader shuffles. A value; copies count their epochs separately. Nothing here
/// is Collective, but for one thing: where the length of the data is unknown, ranks that train (`pad`) agree
/// on each batch whether all of them have one.
template <class Batch>
class FabricLoader {
 public:
  /// For Fabric.
  FabricLoader(Loader<Batch> loader, const ShardSpec& shard, TensorChange conversion)
      : loader_(std::move(loader)), shard_(shard), conversion_(std::move(conversion)) {}

  /// Begins the next epoch.
  typename Epoch<Batch>::Iterator begin() {
    return Epoch<Batch>(with_tensors(loader_.any().stream(shard_, epoch_++), conversion_)).begin();
  }
  /// Behind the last batch.
  std::default_sentinel_t end() const { return {}; }

  /// The number of the epoch that the next begin() begins, from 0; each begin() counts on.
  std::int64_t epoch() const { return epoch_; }
  /// Makes `epoch` the next one: to resume, or to repeat one.
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }

  /// Batches of this rank per epoch.
  std::int64_t num_batches() const { return loader_.num_batches(shard_); }
  /// Samples of the whole data set.
  std::int64_t num_samples() const { return loader_.num_samples(); }
  /// This rank's part.
  const ShardSpec& shard() const { return shard_; }
  /// The loader it was made of.
  const Loader<Batch>& loader() const { return loader_; }

 private:
  Loader<Batch> loader_;
  ShardSpec shard_;
  TensorChange conversion_;
  std::int64_t epoch_ = 0;
};

/// `loader` with streams whose ranks agree which batch is the last one. One number per batch is summed up
/// over the ranks, a step before the sum is needed; next() is Collective in training. Where the length is
/// known, or not only for training, it costs nothing to leave it out.
LOCKSTEP_API std::shared_ptr<AnyLoader> agree_on_batches(
    std::shared_ptr<AnyLoader> loader, const Communicator& communicator,
    UnevenStreams uneven = UnevenStreams::kStopAtShortest);

}  // namespace lockstep
