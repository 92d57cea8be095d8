#include <gmock/gmock.h>

#include <lockstep/base/error.h>
#include <lockstep/formats/token_file.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using test::expect_error;
using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::string bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// llm.c's: 256 numbers, of which three mean something.
std::string header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::vector<std::int32_t> numbers(256);
  numbers[0] = magic;
  numbers[1] = version;
  numbers[2] = count;
  return bytes(numbers);
}

std::vector<std::int64_t> tokens(const TokenFile& file, std::int64_t begin, std::size_t count) {
  std::vector<std::int64_t> tokens(count);
  file.copy(begin, tokens);
  return tokens;
}

const std::string kGpt2 = bytes(std::vector<std::uint16_t>{5, 50256, 65535, 7});
const std::string kLlama = bytes(std::vector<std::uint32_t>{1, 128000, 4'000'000'000U});

TEST(TokenFile, TakesNoOtherFormatForTokens) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& start, const std::vector<std::string>& words) {
    const auto path =
        folder.file("tokens", start + std::string(200, 'x') + (start.size() % 2 == 1 ? "x" : ""));
    expect_error<DataError>([&] { TokenFile file(path); }, words);
  };
  refused("\x93NUMPY\x01", {"no file of tokens", "an array of NumPy"});
  refused("\x1f\x8b\x08", {"compressed with gzip"});
  refused("version https://git-lfs.github.com/spec/v1\n", {"a pointer of Git LFS"});
  // 640 and 35615 are tokens as any others.
  EXPECT_EQ(TokenFile(folder.file("any", bytes(std::vector<std::uint16_t>{640, 1}))).size(), 2);
  EXPECT_EQ(TokenFile(folder.file("gz", bytes(std::vector<std::uint16_t>{35615, 1}))).size(), 2);
}

TEST(TokenFile, ReadsLlmCsFiles) {
  const TemporaryFolder folder;
  const TokenFile gpt(folder.file("gpt.bin", header(20240520, 1, 4) + kGpt2));
  EXPECT_EQ(gpt.size(), 4);
  EXPECT_EQ(gpt.dtype(), TokenDtype::kUint16);
  EXPECT_THAT(tokens(gpt, 0, 4), ElementsAre(5, 50256, 65535, 7));
  EXPECT_THAT(tokens(gpt, 2, 1), ElementsAre(65535));
  const TokenFile llama(folder.file("llama.bin", header(20240801, 7, 3) + kLlama));
  EXPECT_EQ(llama.dtype(), TokenDtype::kUint32);
  EXPECT_THAT(tokens(llama, 0, 3), ElementsAre(1, 128000, 4'000'000'000));
}

TEST(TokenFile, ReadsNanoGptsFiles) {
  const TemporaryFolder folder;
  EXPECT_THAT(tokens(TokenFile(folder.file("n.bin", kGpt2)), 1, 3), ElementsAre(50256, 65535, 7));
  EXPECT_THAT(tokens(TokenFile(folder.file("w.bin", kLlama), TokenDtype::kUint32), 1, 2),
              ElementsAre(128000, 4'000'000'000));
  EXPECT_EQ(TokenFile(folder.file("e.bin", "")).size(), 0);
}

TEST(TokenFile, NamesWhatIsWrong) {
  const TemporaryFolder folder;
  const auto refuse = [&](const std::string& content, const std::vector<std::string>& parts,
                          std::optional<TokenDtype> dtype = {}) {
    const auto path = folder.file("bad.bin", content);
    expect_error<DataError>([&] { TokenFile(path, dtype); }, parts);
  };
  refuse(header(20240520, 2, 4) + kGpt2, {"bad.bin", "version 2", "expected 1"});
  refuse(header(20240520, 1, 5) + kGpt2, {"bad.bin", "says 5 tokens", "8 bytes of uint16"});
  refuse(header(20240520, 1, -1), {"says -1 tokens"});
  refuse(header(20240520, 1, 4).substr(0, 100), {"within its header"});
  refuse(header(20240520, 1, 4) + kGpt2, {"says uint16", "asked for uint32"}, TokenDtype::kUint32);
  refuse(kGpt2 + "x", {"9 bytes", "uint16"});
  refuse(kGpt2.substr(2), {"6 bytes", "uint32"}, TokenDtype::kUint32);
  expect_error<DataError>([&] { TokenFile(folder / "none.bin"); }, {"none.bin", "No such file"});
}

}  // namespace
}  // namespace lockstep
