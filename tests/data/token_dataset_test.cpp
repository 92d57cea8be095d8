#include <gmock/gmock.h>
#include <torch/torch.h>

#include <numeric>

#include <lockstep/base/error.h>
#include <lockstep/data/file_dataset.h>
#include <lockstep/data/loader.h>

#include "data/recorder.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using test::expect_error;
using test::Indices;
using test::TemporaryFolder;

/// A file of the tokens first, first + 1, ..., without a header.
std::filesystem::path tokens(const TemporaryFolder& folder, const std::string& name, std::uint16_t first,
                             std::size_t count) {
  std::vector<std::uint16_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return folder.file(name, {reinterpret_cast<const char*>(values.data()), 2 * count});
}

at::Tensor longs(std::initializer_list<std::int64_t> values) {
  return at::tensor(at::IntArrayRef(values.begin(), values.size()));
}

TEST(TokenDataset, GivesBlocksAndTheSameATokenLater) {
  const TemporaryFolder folder;
  const auto text = token_dataset({tokens(folder, "a.bin", 0, 12)}, {.block_size = 4});
  EXPECT_EQ(text->size(), 2);  // the third block would lack its last target
  const Example batch = text->get_batch(Indices{1, 0});
  EXPECT_TRUE(batch.data.equal(torch::stack({longs({4, 5, 6, 7}), longs({0, 1, 2, 3})})));
  EXPECT_TRUE(batch.target.equal(torch::stack({longs({5, 6, 7, 8}), longs({1, 2, 3, 4})})));
  EXPECT_EQ(token_dataset({tokens(folder, "b.bin", 0, 13)}, {.block_size = 4})->size(), 3);
}

TEST(TokenDataset, JoinsFilesAndOverlapsBlocks) {
  const TemporaryFolder folder;
  const auto text = token_dataset(
      {tokens(folder, "a.bin", 0, 5), tokens(folder, "short.bin", 0, 2), tokens(folder, "b.bin", 100, 7)},
      {.block_size = 3, .stride = 1});
  ASSERT_EQ(text->size(), 2 + 4);
  const Example batch = text->get_batch(Indices{1, 2, 5});
  EXPECT_TRUE(
      batch.data.equal(torch::stack({longs({1, 2, 3}), longs({100, 101, 102}), longs({103, 104, 105})})));
  EXPECT_TRUE(batch.target.select(1, 2).equal(longs({4, 103, 106})));
}

TEST(TokenDataset, LoadsShuffledTheSameWhateverTheWorkers) {
  const TemporaryFolder folder;
  const auto text = token_dataset({tokens(folder, "a.bin", 0, 1000)}, {.block_size = 8});
  const auto all = test::batches_of(loader(text, {.batch_size = 4, .shuffle = true}), 1);
  const auto rest =
      test::batches_of(loader(text, {.batch_size = 4, .shuffle = true, .num_workers = 2}), 1, {}, 5);
  ASSERT_EQ(rest.size(), all.size() - 5);
  for (std::size_t i = 0; i < rest.size(); ++i) EXPECT_TRUE(rest[i].data.equal(all[i + 5].data));
}

TEST(TokenDataset, NamesWhatIsWrong) {
  const TemporaryFolder folder;
  const auto file = tokens(folder, "a.bin", 0, 4);
  expect_error<DataError>([&] { token_dataset({file}, {.block_size = 4}); },
                          {"a.bin", "4 + 1 tokens", "got 4"});
  expect_error<DataError>([&] { token_dataset({}); }, {"no files"});
  expect_error<ConfigError>([&] { token_dataset({file}, {.block_size = 0}); }, {"block_size", "got 0"});
  expect_error<ConfigError>([&] { token_dataset({file}, {.stride = -1}); }, {"stride", "got -1"});
  expect_error<DataError>([&] { token_dataset({file}, {.block_size = 2})->get_batch(Indices{1}); },
                          {"index 1"});
  expect_error<DataError>([&] { token_dataset({folder / "none.bin"}); }, {"none.bin"});
}

}  // namespace
}  // namespace lockstep
