#include <lockstep/data/token_dataset.h>

#include <algorithm>
#include <string>

#include <ATen/ops/empty.h>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

void require(bool is_so, const char* option, const char* expected, std::int64_t got) {
  if (is_so) return;
  throw ConfigError("data", {.what = std::string("token data set: ") + option + " is out of range",
                             .expected = expected,
                             .got = std::to_string(got)});
}

}  // namespace

TokenDataset::TokenDataset(const std::vector<std::filesystem::path>& files,
                           const TokenDatasetOptions& options)
    : block_size_(options.block_size), stride_(options.stride == 0 ? options.block_size : options.stride) {
  require(options.block_size >= 1, "block_size", "1 or more tokens", options.block_size);
  require(options.stride >= 0, "stride", "0 or more tokens", options.stride);
  std::int64_t blocks = 0;
  for (const auto& path : files) {
    const auto& file = files_.emplace_back(path, options.dtype);
    const std::int64_t last = file.size() - block_size_ - 1;  // where the last block may begin
    if (last >= 0) blocks += last / stride_ + 1;
    ends_.push_back(blocks);
  }
  if (blocks > 0) return;
  throw DataError("data", {.what = "no block of tokens in " +
                                   (files.empty() ? "no files" : "'" + files[0].string() + "'") +
                                   (files.size() > 1 ? " and the other files" : ""),
                           .expected = std::to_string(block_size_) + " + 1 tokens",
                           .got = std::to_string(files_.empty() ? 0 : files_[0].size())});
}

void TokenDataset::copy_block(std::int64_t index, std::span<std::int64_t> tokens) const {
  const auto file = static_cast<std::size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  const std::int64_t first = file == 0 ? 0 : ends_[file - 1];
  files_[file].copy((index - first) * stride_, tokens);
}

Example TokenDataset::get_batch(std::span<const std::int64_t> indices) const {
  detail::check_indices(indices, size());
  const auto rows = static_cast<std::int64_t>(indices.size());
  const at::Tensor blocks = at::empty({rows, block_size_ + 1}, at::kLong);
  auto* to = blocks.mutable_data_ptr<std::int64_t>();
  const auto row = static_cast<std::size_t>(block_size_) + 1;
  for (const std::int64_t index : indices) {
    copy_block(index, {to, row});
    to += row;
  }
  return {.data = blocks.narrow(1, 0, block_size_).contiguous(),
          .target = blocks.narrow(1, 1, block_size_).contiguous()};
}

DatasetPtr<Example> token_dataset(const std::vector<std::filesystem::path>& files,
                                  const TokenDatasetOptions& options) {
  return std::make_shared<TokenDataset>(files, options);
}

}  // namespace lockstep
