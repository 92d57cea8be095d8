#include "xla/compile_cache.h"

#include <gmock/gmock.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "support/temporary_folder.h"
#include "xla/test_client.h"

namespace lockstep::xla {
namespace {

using test::content;
using test::TemporaryFolder;
using test::test_client;
using test::triple_text;
using ::testing::HasSubstr;

// Runs the program of triple_text(2).
void expect_that_it_triples(CompileCache& cache) {
  const std::vector<std::shared_ptr<Buffer>> inputs{test::array_of({1, 2})};
  const auto result = cache.get(triple_text(2))->run(0, inputs).front();
  EXPECT_THAT(test::values_of(*result, 2), ::testing::ElementsAre(3, 6));
}

std::string warnings_of(const std::function<void()>& body) {
  ::testing::internal::CaptureStderr();
  body();
  return ::testing::internal::GetCapturedStderr();
}

TEST(XlaCompileCache, CompilesATextOnce) {
  CompileCache cache(test_client());
  EXPECT_EQ(cache.get(triple_text(2)), cache.get(triple_text(2)));
  EXPECT_NE(cache.get(triple_text(2)), cache.get(triple_text(3)));
  const auto counts = cache.counts();
  EXPECT_EQ(counts.compiled, 2);
  EXPECT_EQ(counts.from_memory, 2);
  EXPECT_EQ(counts.from_files, 0);
  EXPECT_GT(counts.compile_seconds, 0.0);
  EXPECT_FALSE(cache.file_of("any"));
}

TEST(XlaCompileCache, FindsWhatAnEarlierProcessHasCompiled) {
  const TemporaryFolder folder;
  CompileCache earlier(test_client(), folder / "a" / "b"), later(test_client(), folder / "a" / "b");
  expect_that_it_triples(earlier);
  expect_that_it_triples(later);
  EXPECT_EQ(earlier.counts().compiled, 1);
  EXPECT_EQ(later.counts().compiled, 0);
  EXPECT_EQ(later.counts().from_files, 1);
  EXPECT_GT(later.counts().load_seconds, 0.0);
}

TEST(XlaCompileCache, CompilesAnewWhatIsDamaged) {
  const TemporaryFolder folder;
  CompileCache earlier(test_client(), folder.path());
  earlier.get(triple_text(2));
  const auto file = *earlier.file_of(triple_text(2));
  const auto whole = content(file);
  auto flipped = whole, foreign = whole;
  flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 1);
  foreign[30] = foreign[30] == '0' ? '1' : '0';  // of another key
  for (const auto& damaged :
       {flipped, foreign, whole.substr(0, whole.size() - 1), whole.substr(0, 40), std::string()}) {
    std::ofstream(file, std::ios::binary) << damaged;
    CompileCache cache(test_client(), folder.path());
    expect_that_it_triples(cache);
    EXPECT_EQ(cache.counts().compiled, 1);
    EXPECT_EQ(cache.counts().from_files, 0);
    CompileCache later(test_client(), folder.path());
    expect_that_it_triples(later);
    EXPECT_EQ(later.counts().from_files, 1);
  }
}

TEST(XlaCompileCache, WarnsOnceOfADamagedFile) {
  const TemporaryFolder folder;
  CompileCache first(test_client(), folder.path());
  const auto file = *first.file_of(triple_text(5));
  const auto read_damaged = [&] {
    std::ofstream(file, std::ios::binary) << "damaged";
    CompileCache(test_client(), folder.path()).get(triple_text(5));
  };
  EXPECT_THAT(warnings_of(read_damaged), HasSubstr("compiled again: " + file.string()));
  EXPECT_EQ(warnings_of(read_damaged), "");
}

TEST(XlaCompileCache, GoesOnWithoutAFolderThatCanBeWritten) {
  const TemporaryFolder folder;
  const auto file = folder.file("file", "");
  CompileCache cache(test_client(), file / "inner");
  EXPECT_THAT(warnings_of([&] { expect_that_it_triples(cache); }),
              HasSubstr("compiled programs are not kept"));
}

TEST(XlaCompileCache, DoesNotKeepWhatFails) {
  const TemporaryFolder folder;
  CompileCache cache(test_client(), folder.path());
  EXPECT_THROW(cache.get("nonsense"), Error);
  EXPECT_THROW(cache.get("nonsense"), Error);
  EXPECT_EQ(folder.entries(), 0);
}

TEST(XlaCompileCache, IsWhereTheUserSays) {
  env::set("LOCKSTEP_XLA_CACHE", "/somewhere");
  EXPECT_EQ(cache_folder(), "/somewhere");
  env::set("LOCKSTEP_XLA_CACHE", "off");
  EXPECT_EQ(cache_folder(), std::nullopt);
  env::unset("LOCKSTEP_XLA_CACHE");
  EXPECT_THAT(cache_folder()->string(), HasSubstr("lockstep/xla"));
}

// A plug-in that changes is another key: its file would be loaded without complaint, and run wrongly.
TEST(XlaCompileCache, KeyHoldsThePluginsChecksum) {
  EXPECT_EQ(test_client()->plugin().sha256().size(), 64U);
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(test_client()->plugin().sha256(), sha256_of(content(test_client()->plugin().file())));
}

}  // namespace
}  // namespace lockstep::xla
