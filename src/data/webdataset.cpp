#include <lockstep/data/webdataset.h>

#include <algorithm>
#include <charconv>
#include <random>

#include <lockstep/base/error.h>
#include <lockstep/data/sampler.h>
#include <lockstep/formats/brace_expansion.h>

#include "data/streams.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> expanded(std::string_view patterns) {
  std::vector<fs::path> shards;
  for (std::size_t begin = 0; begin <= patterns.size();) {
    const std::size_t end = std::min(patterns.find("::", begin), patterns.size());
    const auto pattern = patterns.substr(begin, end - begin);
    const auto names = expand_braces(pattern);
    if (!names) {
      throw ConfigError(
          "data", {.what = "shards '" + std::string(pattern) + "' cannot be expanded", .got = names.error()});
    }
    shards.insert(shards.end(), names->begin(), names->end());
    begin = end + 2;
  }
  return shards;
}

void require_files(const std::vector<fs::path>& shards) {
  for (const auto& shard : shards) {
    std::error_code error;
    if (fs::is_regular_file(shard, error)) continue;
    throw DataError("data", {.what = "no shard '" + shard.string() + "'",
                             .expected = std::to_string(shards.size()) + " files",
                             .got = error ? error.message() : "something that is no regular file"});
  }
}

/// The samples of some shards, one after the other.
class ShardStream final : public ItemStream<WebSample> {
 public:
  explicit ShardStream(std::vector<fs::path> shards) : shards_(std::move(shards)) {}

  bool next(WebSample& item) override {
    for (;;) {
      if (!reader_ && !open_next()) return false;
      auto sample = reader_->next();
      if (!sample) {
        throw DataError("data",
                        {.what = "shard '" + path().string() + "' cannot be read", .got = sample.error()});
      }
      if (*sample) {
        item = WebSample(file_, path(), std::move(**sample));
        return true;
      }
      reader_.reset();
    }
  }

 private:
  const fs::path& path() const { return shards_[opened_ - 1]; }

  bool open_next() try {
    if (opened_ == shards_.size()) return false;
    file_ = std::make_shared<const MappedFile>(shards_[opened_++]);
    reader_.emplace(file_->bytes());
    return true;
  } catch (const IoError& error) {
    throw DataError("data", {.what = "shard '" + path().string() + "' cannot be read", .got = error.what()});
  }

  std::vector<fs::path> shards_;
  std::size_t opened_ = 0;
  std::shared_ptr<const MappedFile> file_;
  std::optional<tar::SampleReader> reader_;
};

/// Holds samples back and gives a random one of them each time.
class ShuffledStream final : public ItemStream<WebSample> {
 public:
  ShuffledStream(std::unique_ptr<ItemStream<WebSample>> from, std::size_t capacity, std::uint64_t seed)
      : from_(std::move(from)), capacity_(capacity), random_(seed) {}

  bool next(WebSample& item) override {
    for (WebSample more; held_.size() < capacity_ && from_->next(more);) held_.push_back(std::move(more));
    if (held_.empty()) return false;
    std::swap(held_[random_() % held_.size()], held_.back());
    item = std::move(held_.back());
    held_.pop_back();
    return true;
  }

 private:
  std::unique_ptr<ItemStream<WebSample>> from_;
  std::size_t capacity_;
  std::mt19937_64 random_;
  std::vector<WebSample> held_;
};

}  // namespace

const tar::Field* WebSample::find(std::string_view extension) const {
  const auto found = std::ranges::find(sample_.fields, extension, &tar::Field::extension);
  return found == sample_.fields.end() ? nullptr : &*found;
}

std::string WebSample::where() const {
  return "sample '" + key() + "' of shard '" + shard_.string() + "' at byte " + std::to_string(offset());
}

std::span<const std::byte> WebSample::bytes(std::string_view extension) const {
  if (const auto* field = find(extension)) return field->bytes;
  std::string there;
  for (const auto& name : extensions()) there += (there.empty() ? "" : ", ") + name;
  throw DataError("data", {.what = "no file '." + std::string(extension) + "' in " + where(), .got = there});
}

std::string_view WebSample::text(std::string_view extension) const {
  const auto all = bytes(extension);
  return {reinterpret_cast<const char*>(all.data()), all.size()};
}

std::int64_t WebSample::integer(std::string_view extension) const {
  std::string_view digits = text(extension);
  digits = digits.substr(0, digits.find_last_not_of(" \r\n") + 1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (!digits.empty() && error == std::errc() && end == digits.data() + digits.size()) return value;
  throw DataError("data", {.what = "'." + std::string(extension) + "' of " + where() + " is no whole number",
                           .got = "'" + std::string(digits.substr(0, 32)) + "'"});
}

std::vector<std::string> WebSample::extensions() const {
  std::vector<std::string> names;
  for (const auto& field : sample_.fields) names.push_back(field.extension);
  return names;
}

WebShards::WebShards(std::string_view shards, const WebDatasetOptions& options)
    : shards_(expanded(shards)), options_(options) {
  if (options.shuffle_buffer < 0) {
    throw ConfigError("data", {.what = "shuffle_buffer is out of range",
                               .expected = "0 or more samples",
                               .got = std::to_string(options.shuffle_buffer)});
  }
  require_files(shards_);
}

std::unique_ptr<ItemStream<WebSample>> WebShards::stream(const ShardSpec& spec, std::int64_t epoch) const {
  const auto count = static_cast<std::int64_t>(shards_.size());
  if (spec.pad && count < spec.num_replicas) {
    throw DataError("data",
                    {.what = "fewer shards than ranks",
                     .expected = "a shard for each of " + std::to_string(spec.num_replicas) + " ranks",
                     .got = std::to_string(count)});
  }
  UnrepeatedDistributedSampler mine(
      count, spec.num_replicas, spec.rank,
      {.shuffle = options_.shuffle_shards && !spec.in_order, .seed = spec.seed});
  mine.set_epoch(epoch);
  std::vector<fs::path> paths;
  for (const auto index : mine.indices()) paths.push_back(shards_[static_cast<std::size_t>(index)]);
  std::unique_ptr<ItemStream<WebSample>> stream = std::make_unique<ShardStream>(std::move(paths));
  if (options_.shuffle_buffer < 2 || spec.in_order) return stream;
  const auto seed = detail::mixed_seed(detail::mixed_seed(spec.seed, static_cast<std::uint64_t>(epoch)),
                                       static_cast<std::uint64_t>(spec.rank));
  return std::make_unique<ShuffledStream>(std::move(stream),
                                          static_cast<std::size_t>(options_.shuffle_buffer), seed);
}

}  // namespace lockstep
