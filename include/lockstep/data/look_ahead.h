// Data whose length shows only at its end: streams that know it one batch before, and ranks that end
// together.
#pragma once

#include <functional>
#include <memory>

#include <lockstep/base/export.h>
#include <lockstep/data/any_loader.h>

namespace lockstep {

/// What ranks do that train on streams of different lengths.
enum class UnevenStreams {
  kStopAtShortest,  ///< the epoch ends for all when it ends for one; what the others have left is not used
  kRefuse           ///< that is an error, on all ranks
};

/// How ranks tell each other that they have a batch. Questions are answered in the order they were asked.
class LOCKSTEP_API BatchAgreement {
 public:
  virtual ~BatchAgreement();
  /// Ranks that must agree.
  virtual int num_ranks() const = 0;
  /// Asks who has a batch, and says whether this rank does. Collective; does not wait for other ranks.
  virtual void ask(bool has_batch) = 0;
  /// How many ranks have one. Waits until all have asked.
  virtual int answer() = 0;
};

/// Makes one for each epoch; none: this rank is alone.
using MakeBatchAgreement = std::function<std::unique_ptr<BatchAgreement>()>;

/// `loader` with streams that make two batches ahead: is_last() says in time which batch is the last one. For
/// training (`spec.pad`) ranks agree on it, so that none waits for one that has ended: the question about a
/// batch is asked a whole step before the answer is needed. Then next() is Collective. An error of this
/// rank's data is thrown in its turn. Order and places are those of `loader`.
/// @throws DataError from next(), on all ranks alike, where `uneven` refuses
LOCKSTEP_API std::shared_ptr<AnyLoader> look_ahead(std::shared_ptr<AnyLoader> loader,
                                                   MakeBatchAgreement agreement = {},
                                                   UnevenStreams uneven = UnevenStreams::kStopAtShortest);

}  // namespace lockstep
