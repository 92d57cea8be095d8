// Checkpoints that DeepSpeed wrote (deepspeed/make_folders.py), and what its own script makes of them.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>

#include <lockstep/base/error.h>
#include <lockstep/formats/checkpoint_tools.h>
#include <lockstep/formats/torch_file.h>

#include "formats/checkpoint_folders.h"
#include "formats/stored_elements.h"
#include "formats/zero_checkpoint.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using detail::StoredElements;
using detail::ZeroParameter;
using safetensors::Dtype;
using test::expect_error;

/// A tensor, in words that are equal where its bits are.
using Contents = std::map<std::string, std::string>;

std::string in_words(Dtype dtype, const std::vector<std::int64_t>& shape, std::span<const std::byte> bytes) {
  std::string text(dtype_name(dtype));
  for (const auto extent : shape) text += " " + std::to_string(extent);
  return text + ": " + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void add_contents(const fs::path& path, Contents& contents) {
  const safetensors::File file(path);
  for (const auto& tensor : file.tensors()) {
    EXPECT_FALSE(contents.contains(tensor.name)) << tensor.name << " is in two files";
    contents[tensor.name] = in_words(tensor.dtype, tensor.shape, tensor.bytes);
  }
}

Contents contents_of(const fs::path& file) {
  Contents contents;
  add_contents(file, contents);
  return contents;
}

/// The weights of the checkpoint in `folder`.
Contents contents_of_folder(const fs::path& folder) {
  const detail::ZeroCheckpoint checkpoint(folder);
  Contents contents;
  for (const auto& tensor : zero_weights(checkpoint)) {
    std::vector<std::byte> bytes;
    detail::write_as_float32(tensor.elements,
                             [&](auto more) { bytes.insert(bytes.end(), more.begin(), more.end()); });
    contents[tensor.name] = in_words(detail::as_float32(tensor.elements.dtype), tensor.shape, bytes);
  }
  return contents;
}

fs::path of_deepspeed(const std::string& name) {
  return test::in_repository("tests/formats/deepspeed") / name;
}

/// What DeepSpeed's script gives for that case.
Contents expected_of(const std::string& name) { return contents_of(of_deepspeed(name + ".safetensors")); }

/// A copy of a case, to be damaged.
fs::path copy_of(const std::string& name, const test::TemporaryFolder& folder) {
  fs::copy(of_deepspeed(name), folder / name, fs::copy_options::recursive);
  return folder / name;
}

class Zero : public ::testing::TestWithParam<const char*> {};

TEST_P(Zero, GivesTheBitsOfDeepSpeedsScript) {
  const test::TemporaryFolder folder;
  zero_to_fp32(of_deepspeed(GetParam()), folder / "out.safetensors");
  auto got = contents_of(folder / "out.safetensors");
  const auto expected = expected_of(GetParam());
  if (!expected.contains("frozen")) {  // DeepSpeed's script forgets it at stage 1
    EXPECT_EQ(got["frozen"], expected_of("stage2")["frozen"]);
    got.erase("frozen");
  }
  EXPECT_EQ(got, expected);
}

TEST_P(Zero, GivesADictOfTorch) {
  const test::TemporaryFolder folder;
  zero_to_fp32(of_deepspeed(GetParam()) / "global_step3", folder / "out.pt");
  const MappedFile mapping(folder / "out.pt");
  const auto file = torch_file::Contents::parse(mapping.bytes());
  ASSERT_TRUE(file) << file.error();
  Contents got;
  std::map<std::string, std::string> storages;
  for (const auto& [name, value] : file->root().as<pickle::Dict>()->entries) {
    const auto& tensor = *value.as<pickle::Tensor>();
    got[*name.as<std::string>()] = in_words(tensor.dtype, tensor.shape, file->bytes_of(*tensor.storage));
    storages[*name.as<std::string>()] = tensor.storage->key;
  }
  zero_to_fp32(of_deepspeed(GetParam()), folder / "out.safetensors");
  EXPECT_EQ(got, contents_of(folder / "out.safetensors"));
  EXPECT_EQ(storages["head.weight"], storages["embed.weight"]);
}

TEST_P(Zero, WritesAsManyFilesAsAreAsked) {
  const test::TemporaryFolder folder;
  zero_to_fp32(of_deepspeed(GetParam()), folder / "one.safetensors");
  zero_to_fp32(of_deepspeed(GetParam()), folder / "one");
  zero_to_fp32(of_deepspeed(GetParam()), folder / "many", {.max_shard_bytes = 100});
  EXPECT_EQ(contents_of(folder / "one" / "model.safetensors"), contents_of(folder / "one.safetensors"));
  Contents got;
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder / "many")) {
    names.insert(entry.path().filename().string());
    if (entry.path().extension() == ".safetensors") add_contents(entry.path(), got);
  }
  EXPECT_EQ(got, contents_of(folder / "one.safetensors"));
  EXPECT_GT(names.size(), 5u);
  EXPECT_TRUE(names.contains("model.safetensors.index.json"));
  EXPECT_EQ(folder.entries(), 3);  // and no draft
}

INSTANTIATE_TEST_SUITE_P(, Zero,
                         ::testing::Values("stage0", "stage1", "stage2", "stage3", "stage3_three_ranks",
                                           "stage2_bf16", "stage3_bf16"),
                         [](const auto& each) { return std::string(each.param); });

TEST(ZeroToFp32, LeavesOutWhatIsFrozen) {
  const test::TemporaryFolder folder;
  for (const auto* name : {"stage1", "stage2", "stage3"}) {
    zero_to_fp32(of_deepspeed(name), folder / "out.safetensors", {.exclude_frozen_parameters = true});
    auto expected = expected_of(name);
    expected.erase("frozen");
    EXPECT_EQ(contents_of(folder / "out.safetensors"), expected) << name;
  }
  const auto of_stage_0 = [&] {
    zero_to_fp32(of_deepspeed("stage0"), folder / "none.safetensors", {.exclude_frozen_parameters = true});
  };
  expect_error<ConfigError>(of_stage_0, {"exclude_frozen_parameters", "stage0", "stage 0"});
}

TEST(ZeroToFp32, TakesTheTagThatIsAskedFor) {
  const test::TemporaryFolder folder;
  const auto root = copy_of("stage2", folder);
  fs::copy(of_deepspeed("stage3") / "global_step3", root / "of three", fs::copy_options::recursive);
  zero_to_fp32(root, folder / "out.safetensors", {.tag = "of three"});
  EXPECT_EQ(contents_of(folder / "out.safetensors"), expected_of("stage3"));
  const auto convert = [&](const std::string& tag) {
    zero_to_fp32(root, folder / "none.safetensors", {.tag = tag});
  };
  expect_error<CheckpointError>([&] { convert("global_step9"); }, {"tag", "'global_step9'", "not there"});
  expect_error<ConfigError>([&] { convert("../x"); }, {"tag", "name of a folder", "'../x'"});
}

TEST(ZeroToFp32, SaysWhatLatestNames) {
  const test::TemporaryFolder folder;
  const auto root = copy_of("stage2", folder);
  const auto convert = [&] { zero_to_fp32(root, folder / "out.safetensors"); };
  std::ofstream(root / "latest") << "global_step4";
  expect_error<CheckpointError>(convert, {"latest", "'global_step4'", "not there"});
  std::ofstream(root / "latest") << "../../etc";
  expect_error<CheckpointError>(convert, {"latest", "'../../etc'"});
  std::ofstream(root / "latest") << std::string(100'000, 'x');
  expect_error<CheckpointError>(convert, {"latest", "names no checkpoint"});
  fs::remove(root / "latest");
  expect_error<IoError>(convert, {root.string(), "is no checkpoint"});
  EXPECT_EQ(detail::tagged_folder(root), root);
  std::ofstream(root / "latest") << "global_step3\n";
  EXPECT_EQ(detail::tagged_folder(root), root / "global_step3");
}

TEST(ZeroToFp32, NamesTheFileThatIsMissing) {
  const test::TemporaryFolder folder;
  const auto refused_without = [&](const std::string& name, const std::string& file) {
    const auto root = copy_of(name, folder);
    fs::remove(root / "global_step3" / file);
    const auto convert = [&] { zero_to_fp32(root, folder / "out.safetensors"); };
    expect_error<CheckpointError>(convert, {root.string(), "lacks the file " + file});
    fs::remove_all(root);
  };
  refused_without("stage2", "zero_pp_rank_1_mp_rank_00_optim_states.pt");
  refused_without("stage2", "zero_pp_rank_0_mp_rank_00_optim_states.pt");
  refused_without("stage2", "mp_rank_00_model_states.pt");
  refused_without("stage3", "zero_pp_rank_1_mp_rank_00_model_states.pt");
  refused_without("stage3_three_ranks", "zero_pp_rank_2_mp_rank_00_optim_states.pt");
  refused_without("stage3_bf16", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
}

TEST(ZeroToFp32, RefusesFilesOfSeveralCheckpoints) {
  const test::TemporaryFolder folder;
  const auto root = copy_of("stage3", folder) / "global_step3";
  const auto convert = [&] { zero_to_fp32(root, folder / "out.safetensors"); };
  const auto three = of_deepspeed("stage3_three_ranks") / "global_step3";
  const std::string name = "zero_pp_rank_2_mp_rank_00_optim_states.pt";
  fs::copy(three / name, root / name);
  expect_error<CheckpointError>(convert, {name, "2 ranks", "older checkpoint"});
  fs::rename(root / name, root / "zero_pp_rank_7_mp_rank_00_optim_states.pt");
  expect_error<CheckpointError>(convert, {"rank_7", "2 ranks", "older checkpoint"});
  fs::remove(root / "zero_pp_rank_7_mp_rank_00_optim_states.pt");
  const std::string other = "zero_pp_rank_1_mp_rank_00_optim_states.pt";
  fs::copy_file(three / other, root / other, fs::copy_options::overwrite_existing);
  expect_error<CheckpointError>(convert, {other, "partition_count", "2, as in that of rank 0", "got 3"});
  fs::copy_file(of_deepspeed("stage2") / "global_step3" / other, root / other,
                fs::copy_options::overwrite_existing);
  expect_error<CheckpointError>(convert, {other, "zero_stage", "3, as in that of rank 0", "got 2"});
}

TEST(ZeroToFp32, RefusesAModelsFileOfARankThatDidNotSave) {
  const test::TemporaryFolder folder;
  const auto root = copy_of("stage3", folder) / "global_step3";
  const std::string name = "zero_pp_rank_2_mp_rank_00_model_states.pt";
  fs::copy(of_deepspeed("stage3_three_ranks") / "global_step3" / name, root / name);
  const auto convert = [&] { zero_to_fp32(root, folder / "out.safetensors"); };
  expect_error<CheckpointError>(convert, {name, "2 ranks", "older checkpoint"});
}

TEST(ZeroToFp32, RefusesAModelsFilesOfAnotherStage) {
  const test::TemporaryFolder folder;
  const auto root = copy_of("stage2", folder) / "global_step3";
  const std::string name = "zero_pp_rank_0_mp_rank_00_model_states.pt";
  fs::copy(of_deepspeed("stage3") / "global_step3" / name, root / name);
  const auto convert = [&] { zero_to_fp32(root, folder / "out.safetensors"); };
  expect_error<CheckpointError>(convert, {name, "stage 2", "older checkpoint"});
}

TEST(ZeroToFp32, RefusesOtherKinds) {
  const test::TemporaryFolder folder;
  const auto root = copy_of("stage2", folder);
  const auto step = root / "global_step3";
  const auto convert = [&] { zero_to_fp32(root, folder / "out.safetensors"); };
  for (const std::string name : {"mp_rank_01_model_states.pt", "layer_00-model_00-model_states.pt",
                                 "layer_0_expert_1_mp_rank_00_model_states.pt"}) {
    std::ofstream(step / name) << "x";
    expect_error<CheckpointError>(convert, {"'" + name + "'", "parallelism"});
    fs::remove(step / name);
  }
  const auto inspect = [&] { (void)describe_checkpoint(root); };
  expect_error<CheckpointError>(inspect, {step.string(), "of DeepSpeed", "zero-to-fp32"});
  fs::remove_all(step);
  fs::create_directory(step);
  expect_error<IoError>(convert, {step.string(), "is no checkpoint"});
}

TEST(ZeroToFp32, NamesTheFileThatIsTorn) {
  const test::TemporaryFolder folder;
  for (const std::string name : {"mp_rank_00_model_states.pt", "zero_pp_rank_1_mp_rank_00_optim_states.pt"}) {
    const auto root = copy_of("stage2", folder);
    const auto file = root / "global_step3" / name;
    fs::resize_file(file, fs::file_size(file) / 2);
    const auto convert = [&] { zero_to_fp32(root, folder / "out.safetensors"); };
    expect_error<CheckpointError>(convert, {file.string()});
    EXPECT_FALSE(fs::exists(folder / "out.safetensors"));
    fs::remove_all(root);
  }
}

// What is not found out is outside of what is read, such as the time of a file in the archive.
TEST(ZeroToFp32, SurvivesFlippedBytes) {
  const test::TemporaryFolder folder;
  for (const std::string name : {"stage2", "stage3"}) {
    const auto step = copy_of(name, folder) / "global_step3";
    int refused = 0;
    for (const auto& entry : fs::directory_iterator(step)) {
      const auto whole = test::content(entry.path());
      for (std::size_t at = 0; at < whole.size(); at += 37) {
        auto damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
        std::ofstream(entry.path(), std::ios::binary) << damaged;
        try {
          EXPECT_EQ(contents_of_folder(step), expected_of(name));
        } catch (const CheckpointError& error) {
          ++refused;
          EXPECT_THAT(error.what(), ::testing::HasSubstr(entry.path().string()));
        }
      }
      std::ofstream(entry.path(), std::ios::binary) << whole;
    }
    EXPECT_GT(refused, 200);
  }
}

TEST(ZeroToFp32, NeverReplacesAFolderWithFiles) {
  const test::TemporaryFolder folder;
  fs::create_directory(folder / "out");
  std::ofstream(folder / "out" / "mine") << "x";
  const auto convert = [&] { zero_to_fp32(of_deepspeed("stage2"), folder / "out"); };
  expect_error<IoError>(convert, {(folder / "out").string(), "a folder with files"});
  fs::remove(folder / "out" / "mine");
  convert();
  EXPECT_EQ(contents_of(folder / "out" / "model.safetensors"), expected_of("stage2"));
  const auto sized = [&] {
    zero_to_fp32(of_deepspeed("stage2"), folder / "out.safetensors", {.max_shard_bytes = 1});
  };
  expect_error<ConfigError>(sized, {"max_shard_size", "out.safetensors"});
}

TEST(ZeroToFp32, KnowsSizes) {
  EXPECT_EQ(parse_shard_size("5GB"), 5'000'000'000u);
  EXPECT_EQ(parse_shard_size("12mb"), 12'000'000u);
  for (const auto* text :
       {"", "5", "GB", "5 GB", "-1GB", "0KB", "5GiB", "99999999999999999999GB", "9999999999TB"})
    expect_error<ConfigError>([&] { (void)parse_shard_size(text); }, {"max_shard_size", "KB, MB, GB"});
}

TEST(ZeroLayout, FindsWhatDoesNotFit) {
  const std::vector<ZeroParameter> ten{{.name = "w", .shape = {10}, .elements = 10}};
  const auto groups = [&](const detail::ZeroLengths& lengths) {
    const auto runs = detail::zero_runs_of_groups({ten}, lengths);
    return runs ? std::string() : runs.error();
  };
  const auto pieces = [&](const detail::ZeroLengths& lengths) {
    const auto runs = detail::zero_runs_of_pieces(ten, lengths);
    return runs ? std::string() : runs.error();
  };
  EXPECT_EQ(groups({{5}, {5}}), "");
  EXPECT_EQ(groups({{10}, {0}}), "");
  EXPECT_EQ(groups({{5}, {4}}), "parameter 'w' has 10 elements, the ranks have only 9 more");
  EXPECT_EQ(groups({{9}, {5}}), "4 elements of row 0 belong to no parameter");
  EXPECT_EQ(groups({{5, 1}, {5}}), "rank 0 has 2 rows, there are 1 groups of parameters");
  EXPECT_EQ(pieces({{3}, {4}}), "rank 1 has rows of other sizes than rank 0");
  EXPECT_EQ(pieces({{4}, {4}, {4}}), "");
  EXPECT_EQ(pieces({{3}, {3}, {3}}), "parameter 'w' has 10 elements, the ranks have only 9 more");
  EXPECT_EQ(pieces({{5}, {5}, {5}}), "1 elements of row 0 belong to no parameter");
}

TEST(ZeroLayout, FollowsAPieceThroughSeveralRows) {
  const std::vector<ZeroParameter> two{{.name = "a", .shape = {3}, .elements = 3},
                                       {.name = "b", .shape = {9}, .elements = 9}};
  const auto runs = detail::zero_runs_of_pieces(two, {{4, 0, 3}, {4, 0, 3}});
  ASSERT_TRUE(runs) << runs.error();
  std::vector<std::string> texts;
  for (const auto& run : (*runs)[1])
    texts.push_back(std::to_string(run.rank) + "." + std::to_string(run.row) + ": " +
                    std::to_string(run.begin) + "+" + std::to_string(run.elements));
  EXPECT_THAT(texts, ::testing::ElementsAre("0.0: 2+2", "0.2: 0+3", "1.0: 2+2", "1.2: 0+2"));
}

template <class T>
std::vector<float> as_floats(Dtype dtype, const std::vector<T>& values) {
  std::vector<float> floats;
  detail::write_as_float32({.dtype = dtype, .runs = {std::as_bytes(std::span(values))}}, [&](auto bytes) {
    const auto begin = floats.size();
    floats.resize(begin + bytes.size() / sizeof(float));
    std::memcpy(floats.data() + begin, bytes.data(), bytes.size());
  });
  return floats;
}

TEST(StoredElements, BecomeFloats) {
  const std::vector<float> expected{1.0F,      -2.0F,        65504.0F, 0x1p-24F,
                                    -0x1p-14F, 0x1.ff8p-15F, INFINITY, -0.0F};
  EXPECT_EQ(
      as_floats<std::uint16_t>(Dtype::kF16, {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x8400, 0x03FF, 0x7C00, 0x8000}),
      expected);
  EXPECT_EQ(as_floats<std::uint16_t>(Dtype::kBF16, {0x3F80, 0xC000, 0x7F80}),
            (std::vector<float>{1.0F, -2.0F, INFINITY}));
  EXPECT_EQ(as_floats<double>(Dtype::kF64, {0.1, -1e300}), (std::vector<float>{0.1F, -INFINITY}));
  EXPECT_TRUE(std::isnan(as_floats<std::uint16_t>(Dtype::kF16, {0x7E00}).front()));
  std::vector<std::uint16_t> many(1'000'000);  // of several chunks
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::uint16_t>(i % 0x7F80);
  const auto floats = as_floats(Dtype::kBF16, many);
  ASSERT_EQ(floats.size(), many.size());
  EXPECT_EQ(std::bit_cast<std::uint32_t>(floats.back()) >> 16, many.back());
}

std::vector<float> as_floats(const StoredElements& elements) {
  std::vector<float> floats;
  detail::write_as_float32(elements, [&](auto bytes) {
    EXPECT_LE(bytes.size(), 1u << 20);
    floats.resize(floats.size() + bytes.size() / sizeof(float));
    std::memcpy(floats.data() + floats.size() - bytes.size() / sizeof(float), bytes.data(), bytes.size());
  });
  return floats;
}

// A matrix that was saved transposed, behind one element, in three dimensions.
TEST(StoredElements, AreGatheredPieceByPiece) {
  constexpr std::int64_t kRows = 700, kColumns = 1'000;
  std::vector<float> storage(1 + kRows * kColumns);
  for (std::size_t i = 0; i < storage.size(); ++i) storage[i] = static_cast<float>(i);
  const StoredElements transposed{
      .strided = detail::StridedElements{.storage = std::as_bytes(std::span(storage)),
                                         .offset = 1,
                                         .shape = {kRows, 1, kColumns},
                                         .stride = {1, std::numeric_limits<std::int64_t>::max(), kRows},
                                         .count = kRows * kColumns}};
  std::vector<float> expected;
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t column = 0; column < kColumns; ++column)
      expected.push_back(static_cast<float>(1 + row + column * kRows));
  EXPECT_EQ(as_floats(transposed), expected);
  const auto slice = as_floats(slice_of(slice_of(transposed, 5'000, 400'000), 1'234, 300'000));
  EXPECT_TRUE(std::ranges::equal(slice, std::span(expected).subspan(6'234, 300'000)));
  EXPECT_THROW((void)slice_of(transposed, 1, kRows * kColumns), std::out_of_range);
}

}  // namespace
}  // namespace lockstep
