#include <lockstep/data/look_ahead.h>

#include <deque>
#include <exception>
#include <string>
#include <utility>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

/// The agreement of a single rank.
class OwnAnswer final : public BatchAgreement {
 public:
  int num_ranks() const override { return 1; }
  void ask(bool has_batch) override { answers_.push_back(has_batch); }
  int answer() override {
    const int answer = answers_.front() ? 1 : 0;
    answers_.pop_front();
    return answer;
  }

 private:
  std::deque<bool> answers_;
};

class LookAheadStream final : public BatchStream {
 public:
  LookAheadStream(std::unique_ptr<BatchStream> from, std::unique_ptr<BatchAgreement> agreement,
                  UnevenStreams uneven, std::int64_t first)
      : from_(std::move(from)), agreement_(std::move(agreement)), uneven_(uneven), next_(first) {}

  bool next(AnyBatch& batch) override {
    if (!std::exchange(started_, true)) {
      ask();
      hear();
    }
    if (!has_more_) return false;
    const Held mine = std::move(ahead_.front());
    ahead_.pop_front();
    ++next_;
    if (mine.error) end_with(mine.error);
    hear();
    batch = mine.batch;
    return true;
  }

  bool is_last() const override { return started_ && !has_more_; }

 private:
  struct Held {
    AnyBatch batch;
    std::exception_ptr error;
  };

  /// Throws `error` of this rank, of which the different lengths of the streams are only a consequence.
  [[noreturn]] void end_with(const std::exception_ptr& error) {
    try {
      hear();
    } catch (const DataError&) {
    }
    has_more_ = false;
    std::rethrow_exception(error);
  }

  /// Makes one more batch and asks who else has one.
  void ask() {
    Held held;
    bool has = false;
    try {
      has = from_->next(held.batch);
    } catch (...) {  // it is thrown when its batch is due
      held.error = std::current_exception();
      has = true;
    }
    if (has) ahead_.push_back(std::move(held));
    agreement_->ask(has);
  }

  /// Takes the answer about the next batch, and asks about the one after it.
  void hear() {
    const int ranks = agreement_->answer();
    has_more_ = ranks == agreement_->num_ranks();
    if (has_more_) return ask();
    if (ranks == 0 || uneven_ == UnevenStreams::kStopAtShortest) return;
    throw DataError("data", {.what = "ranks have streams of different lengths",
                             .expected = "a batch number " + std::to_string(next_) + " on all of " +
                                         std::to_string(agreement_->num_ranks()) + " ranks, or on none",
                             .got = "one on " + std::to_string(ranks)});
  }

  std::unique_ptr<BatchStream> from_;
  std::unique_ptr<BatchAgreement> agreement_;
  UnevenStreams uneven_;
  std::int64_t next_;  // number of the batch that is next
  std::deque<Held> ahead_;
  bool started_ = false;
  bool has_more_ = false;
};

class LookAheadLoader final : public AnyLoader {
 public:
  LookAheadLoader(std::shared_ptr<AnyLoader> loader, MakeBatchAgreement agreement, UnevenStreams uneven)
      : loader_(std::move(loader)), agreement_(std::move(agreement)), uneven_(uneven) {}

  std::int64_t num_batches(const ShardSpec& spec) const override { return loader_->num_batches(spec); }
  std::int64_t num_samples() const override { return loader_->num_samples(); }
  std::int64_t batch_size() const override { return loader_->batch_size(); }
  bool is_dealt_out() const override { return loader_->is_dealt_out(); }

  std::unique_ptr<BatchStream> stream(const ShardSpec& spec, std::int64_t epoch,
                                      std::int64_t skip_batches) const override {
    const bool together = agreement_ && spec.pad;
    return std::make_unique<LookAheadStream>(loader_->stream(spec, epoch, skip_batches),
                                             together ? agreement_() : std::make_unique<OwnAnswer>(), uneven_,
                                             skip_batches);
  }

 private:
  std::shared_ptr<AnyLoader> loader_;
  MakeBatchAgreement agreement_;
  UnevenStreams uneven_;
};

}  // namespace

BatchAgreement::~BatchAgreement() = default;

std::shared_ptr<AnyLoader> look_ahead(std::shared_ptr<AnyLoader> loader, MakeBatchAgreement agreement,
                                      UnevenStreams uneven) {
  return std::make_shared<LookAheadLoader>(std::move(loader), std::move(agreement), uneven);
}

}  // namespace lockstep
