#include <lockstep/data/combined_loader.h>

#include <algorithm>
#include <string>
#include <utility>

#include <lockstep/base/error.h>

#include "data/streams.h"

namespace lockstep {
namespace {

// The bits of a seed that count the rounds of a loader. LibTorch's generator uses the lower 32 bits of a
// seed, of which the epoch has the others.
constexpr int kRoundBits = 20;

std::int64_t saturated_sum(std::int64_t a, std::int64_t b) {
  return a > kUnknownLength - b ? kUnknownLength : a + b;
}

/// One of the loaders in one epoch: its first `limit` batches, each time that it is begun.
class Part {
 public:
  Part(std::shared_ptr<AnyLoader> loader, std::int64_t limit, const ShardSpec& spec, std::int64_t epoch)
      : loader_(std::move(loader)), limit_(limit), spec_(spec), epoch_(epoch) {}

  /// The number of batches; unknown for a stream even with a limit, which is only an upper bound.
  std::int64_t length() const {
    const auto available = loader_->num_batches(spec_);
    return limit_ == 0 || available != kUnknownLength ? std::min(available, limit_) : kUnknownLength;
  }
  std::int64_t rounds() const { return rounds_; }

  /// Begins round number `round` with batch `first` of it.
  void begin(std::int64_t round, std::int64_t first) {
    stream_.reset();  // so that the next stream can use its threads
    stream_ = loader_->stream(spec_, epoch_ + (round << kRoundBits), std::min(first, length()));
    rounds_ = round;
    left_ = limit_ - std::min(first, limit_);
  }
  void begin_anew() { begin(rounds_ + 1, 0); }
  void end() { stream_.reset(); }

  bool next(AnyBatch& batch) {
    if (left_ == 0 || !stream_->next(batch)) return false;
    --left_;
    return true;
  }

 private:
  std::shared_ptr<AnyLoader> loader_;
  std::int64_t limit_;
  ShardSpec spec_;
  std::int64_t epoch_;
  std::unique_ptr<BatchStream> stream_;
  std::int64_t rounds_ = 0;
  std::int64_t left_ = 0;
};

/// The base of the streams of all modes.
class CombinedStream : public BatchStream {
 public:
  CombinedStream(std::vector<Part> parts, detail::Assemble assemble)
      : parts_(std::move(parts)), assemble_(std::move(assemble)) {}

  /// Passes over batches, in one step where the lengths are known.
  void skip(std::int64_t count) {
    if (std::ranges::all_of(parts_, [](const Part& part) { return part.length() != kUnknownLength; })) {
      return begin(count);
    }
    begin(0);
    for (std::vector<AnyBatch> batches(parts_.size()); count > 0 && take(batches); --count)
      batches.assign(parts_.size(), {});
  }

  bool next(AnyBatch& batch) final {
    std::vector<AnyBatch> batches(parts_.size());
    if (std::exchange(ended_, true) || !take(batches)) return false;  // an error ends the stream
    batch = assemble_(batches);
    ended_ = false;
    return true;
  }

 protected:
  std::vector<Part>& parts() { return parts_; }

 private:
  /// Begins behind `count` batches; lengths are known unless it is 0.
  virtual void begin(std::int64_t count) = 0;
  /// The next batch of each part, or none; false at the end.
  virtual bool take(std::vector<AnyBatch>& batches) = 0;

  std::vector<Part> parts_;
  detail::Assemble assemble_;
  bool ended_ = false;
};

class SequentialStream final : public CombinedStream {
 public:
  using CombinedStream::CombinedStream;

 private:
  void begin(std::int64_t count) override {
    for (now_ = 0; now_ < parts().size() && count > 0 && count >= parts()[now_].length(); ++now_)
      count -= parts()[now_].length();
    if (now_ < parts().size()) parts()[now_].begin(0, count);
  }

  bool take(std::vector<AnyBatch>& batches) override {
    while (now_ < parts().size()) {
      if (parts()[now_].next(batches[now_])) return true;
      parts()[now_].end();
      if (++now_ < parts().size()) parts()[now_].begin(0, 0);
    }
    return false;
  }

  std::size_t now_ = 0;
};

/// A batch of each: kMinSize and kMaxSize.
class ParallelStream final : public CombinedStream {
 public:
  ParallelStream(std::vector<Part> parts, detail::Assemble assemble, bool needs_all)
      : CombinedStream(std::move(parts), std::move(assemble)), needs_all_(needs_all) {}

 private:
  void begin(std::int64_t count) override {
    for (Part& part : parts()) part.begin(0, count);
  }

  bool take(std::vector<AnyBatch>& batches) override {
    bool any = false;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const bool has = parts()[i].next(batches[i]);
      if (!has && needs_all_) return false;
      any = any || has;
    }
    return any;
  }

  bool needs_all_;
};

class CycleStream final : public CombinedStream {
 public:
  using CombinedStream::CombinedStream;

 private:
  void begin(std::int64_t count) override {
    for (Part& part : parts()) {
      const std::int64_t length = std::max<std::int64_t>(part.length(), 1);
      part.begin(count / length, count % length);
    }
  }

  bool all_ended_once() {
    return std::ranges::all_of(parts(), [](const Part& part) { return part.rounds() > 0; });
  }

  bool take(std::vector<AnyBatch>& batches) override {
    if (all_ended_once()) return false;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (parts()[i].next(batches[i])) continue;
      parts()[i].begin_anew();
      if (all_ended_once() || !parts()[i].next(batches[i])) return false;
    }
    return true;
  }
};

class CombinedLoader final : public AnyLoader {
 public:
  CombinedLoader(const CombinedOptions& options, LoaderList loaders, detail::Assemble assemble)
      : mode_(options.mode),
        loaders_(std::move(loaders)),
        limits_(options.limits),
        assemble_(std::move(assemble)) {
    if (limits_.empty()) limits_.assign(loaders_.size(), kUnknownLength);
  }

  std::int64_t num_batches(const ShardSpec& spec) const override {
    std::vector<std::int64_t> lengths;
    for (const Part& part : parts(spec, 0)) lengths.push_back(part.length());
    // The shortest is known where one is empty, or all are known.
    const bool may_end_anywhere = mode_ == CombinedMode::kMinSize && std::ranges::min(lengths) > 0;
    if (may_end_anywhere && std::ranges::max(lengths) == kUnknownLength) return kUnknownLength;
    const bool needs_all = mode_ == CombinedMode::kMinSize || std::ranges::min(lengths) == 0;
    if (needs_all && mode_ != CombinedMode::kMaxSize && mode_ != CombinedMode::kSequential)
      return std::ranges::min(lengths);  // a loader without batches cannot be cycled
    if (mode_ != CombinedMode::kSequential) return std::ranges::max(lengths);
    std::int64_t sum = 0;
    for (const auto length : lengths) sum = saturated_sum(sum, length);
    return sum;
  }

  std::int64_t num_samples() const override {
    std::int64_t sum = 0;
    for (const auto& loader : loaders_) sum = saturated_sum(sum, loader->num_samples());
    return sum;
  }

  std::int64_t batch_size() const override {
    if (mode_ == CombinedMode::kSequential) return loaders_[0]->batch_size();
    std::int64_t sum = 0;
    for (const auto& loader : loaders_) sum += loader->batch_size();
    return sum;
  }

  bool is_dealt_out() const override {
    return std::ranges::any_of(loaders_, [](const auto& loader) { return loader->is_dealt_out(); });
  }

  std::unique_ptr<BatchStream> stream(const ShardSpec& spec, std::int64_t epoch,
                                      std::int64_t skip_batches) const override {
    auto stream = make_stream(parts(spec, epoch));
    stream->skip(skip_batches);
    return stream;
  }

 private:
  // Loaders of equal length would have one order, so that the same samples met in every epoch.
  std::vector<Part> parts(const ShardSpec& spec, std::int64_t epoch) const {
    std::vector<Part> parts;
    for (std::size_t i = 0; i < loaders_.size(); ++i) {
      auto own = spec;
      if (i > 0) own.seed = detail::mixed_seed(spec.seed, i);
      parts.emplace_back(loaders_[i], limits_[i], own, epoch);
    }
    return parts;
  }

  std::unique_ptr<CombinedStream> make_stream(std::vector<Part> parts) const {
    switch (mode_) {
      case CombinedMode::kSequential:
        return std::make_unique<SequentialStream>(std::move(parts), assemble_);
      case CombinedMode::kMaxSizeCycle:
        return std::make_unique<CycleStream>(std::move(parts), assemble_);
      default:
        return std::make_unique<ParallelStream>(std::move(parts), assemble_, mode_ == CombinedMode::kMinSize);
    }
  }

  CombinedMode mode_;
  LoaderList loaders_;
  std::vector<std::int64_t> limits_;
  detail::Assemble assemble_;
};

}  // namespace

std::span<const OptionName<CombinedMode>> option_names(CombinedMode) {
  static constexpr OptionName<CombinedMode> kNames[] = {{"min_size", CombinedMode::kMinSize},
                                                        {"max_size_cycle", CombinedMode::kMaxSizeCycle},
                                                        {"max_size", CombinedMode::kMaxSize},
                                                        {"sequential", CombinedMode::kSequential}};
  return kNames;
}

namespace detail {

std::int64_t total_size(std::span<const AnyBatch> parts) {
  std::int64_t sum = 0;
  for (const AnyBatch& part : parts) sum += part.size();
  return sum;
}

std::shared_ptr<AnyLoader> make_combined(const CombinedOptions& options, LoaderList loaders,
                                         Assemble assemble) {
  if (loaders.empty()) throw ConfigError("data", {.what = "no loaders to combine"});
  if (!options.limits.empty() && options.limits.size() != loaders.size()) {
    throw ConfigError("data", {.what = "combined loaders: limits do not match the loaders",
                               .expected = std::to_string(loaders.size()),
                               .got = std::to_string(options.limits.size())});
  }
  for (const auto limit : options.limits) {
    if (limit >= 0) continue;
    throw ConfigError("data", {.what = "combined loaders: a limit is out of range",
                               .expected = "0 or more batches",
                               .got = std::to_string(limit)});
  }
  return std::make_shared<CombinedLoader>(options, std::move(loaders), std::move(assemble));
}

}  // namespace detail

}  // namespace lockstep
