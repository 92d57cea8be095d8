// WebDataset: samples in tar archives ("shards"), read from front to back.
// Source: https://github.com/webdataset/webdataset
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/data/batch_generator.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/iterable_dataset.h>
#include <lockstep/formats/mapped_file.h>
#include <lockstep/formats/tar.h>

namespace lockstep {

/// One sample: files of one shard with one key. A value; copies share the mapped shard.
class LOCKSTEP_API WebSample {
 public:
  WebSample() = default;
  /// `shard` is the file that it comes from, for errors.
  WebSample(std::shared_ptr<const MappedFile> file, std::filesystem::path shard, tar::Sample sample)
      : file_(std::move(file)), shard_(std::move(shard)), sample_(std::move(sample)) {}

  /// Path of its files in the shard up to the first dot of their names.
  const std::string& key() const { return sample_.key; }
  /// Where it is: the shard, and the byte of it where the sample begins.
  const std::filesystem::path& shard() const { return shard_; }
  /// Bytes from the start of the shard.
  std::uint64_t offset() const { return sample_.offset; }

  /// Whether the sample has a file of that extension.
  bool contains(std::string_view extension) const { return find(extension) != nullptr; }
  /// The bytes of the file with that extension (in lower case: "jpg", "seg.png"); valid as long as a copy of
  /// this object.
  /// @throws DataError naming shard, key and the extensions that there are
  std::span<const std::byte> bytes(std::string_view extension) const;
  /// The same as text.
  std::string_view text(std::string_view extension) const;
  /// The same as a whole number, such as a class. @throws DataError also when it is none
  std::int64_t integer(std::string_view extension) const;
  /// The extensions that there are, in the shard's order.
  std::vector<std::string> extensions() const;

 private:
  const tar::Field* find(std::string_view extension) const;
  std::string where() const;

  std::shared_ptr<const MappedFile> file_;
  std::filesystem::path shard_;
  tar::Sample sample_;
};

/// In what order a WebDataset gives its samples.
struct WebDatasetOptions {
  bool shuffle_shards = false;  ///< a new order of the shards each epoch, the same on all ranks
  std::int64_t shuffle_buffer =
      0;  ///< samples held back, of which a random one is given each time; 0: in order
};

/// The samples of shards, without decoding. Each epoch, rank r of n gets the shards r, r + n, ... of the
/// list, so give at least as many as ranks, and of like size: training ends with the rank that has fewest
/// samples. Reading passes over files' contents: whoever decodes a sample fetches its pages. The order
/// depends on the seed, the epoch and the rank alone.
class LOCKSTEP_API WebShards {
 public:
  /// `shards`: a path, or many as expand_braces() takes them; also several of them with `::` between.
  /// @throws ConfigError for a pattern that is damaged, shuffle_buffer < 0; DataError naming the first shard
  ///     that does not exist
  WebShards(std::string_view shards, const WebDatasetOptions& options);

  /// The files, in the order given.
  const std::vector<std::filesystem::path>& shards() const { return shards_; }
  /// @throws DataError when there are fewer shards than ranks that train (spec.pad); while reading, naming
  /// the
  ///     shard and the byte of it that is damaged
  std::unique_ptr<ItemStream<WebSample>> stream(const ShardSpec& spec, std::int64_t epoch) const;

 private:
  std::vector<std::filesystem::path> shards_;
  WebDatasetOptions options_;
};

namespace detail {

/// What samples of type T become together: Example and Tensor are stacked, others put in a vector.
template <class T>
auto batch_of(std::vector<T> samples) {
  if constexpr (requires { collate(std::span<const T>(samples)); }) {
    return collate(std::span<const T>(samples));
  } else {
    return samples;
  }
}

template <class Decode>
using DecodedBatch = decltype(batch_of(std::vector<std::invoke_result_t<const Decode&, const WebSample&>>()));

}  // namespace detail

/// Shards, and how a sample becomes one of a batch.
template <class Decode>
class WebDataset final : public IterableDataset<WebSample, detail::DecodedBatch<Decode>> {
 public:
  /// `decode` makes an item of a sample; it is called by several threads.
  WebDataset(WebShards shards, Decode decode) : shards_(std::move(shards)), decode_(std::move(decode)) {}

  /// The files, in the order given.
  const std::vector<std::filesystem::path>& shards() const { return shards_.shards(); }

  std::unique_ptr<ItemStream<WebSample>> stream(const ShardSpec& spec, std::int64_t epoch) const override {
    return shards_.stream(spec, epoch);
  }
  detail::DecodedBatch<Decode> collate(std::vector<WebSample> items) const override {
    std::vector<std::invoke_result_t<const Decode&, const WebSample&>> samples;
    samples.reserve(items.size());
    for (const WebSample& item : items) samples.push_back(decode_(item));
    return detail::batch_of(std::move(samples));
  }

 private:
  WebShards shards_;
  Decode decode_;
};

/// Samples of tar shards: `ls::web_dataset("train-{000..099}.tar", decode, {.shuffle_shards = true})`.
/// `decode(const WebSample&)` makes a sample of it, called by several threads at once; batches are Example or
/// at::Tensor where it gives such, stacked, else std::vector of what it gives.
/// @throws as WebShards' constructor
template <class Decode>
std::shared_ptr<const WebDataset<Decode>> web_dataset(std::string_view shards, Decode decode,
                                                      const WebDatasetOptions& options = {}) {
  return std::make_shared<WebDataset<Decode>>(WebShards(shards, options), std::move(decode));
}

}  // namespace lockstep
