#include <gmock/gmock.h>
#include <lockstep/profilers/profilers.h>

#include <lockstep/base/error.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

TEST(MakeProfiler, KnowsTheNames) {
  EXPECT_THAT(profiler_names(), ::testing::ElementsAre("simple", "advanced", "trace"));
  EXPECT_TRUE(dynamic_cast<SimpleProfiler*>(make_profiler("simple").get()));
  EXPECT_TRUE(dynamic_cast<AdvancedProfiler*>(make_profiler("advanced").get()));
  EXPECT_TRUE(dynamic_cast<TraceProfiler*>(make_profiler("trace").get()));
}

TEST(MakeProfiler, HandsTheFileOn) {
  const test::TemporaryFolder folder;
  for (const auto& name : profiler_names()) {
    const auto profiler = make_profiler(name, {.dirpath = folder.path(), .filename = "perf_" + name});
    profiler->setup("fit", 0);
    ::testing::internal::CaptureStderr();
    profiler->describe();
    ::testing::internal::GetCapturedStderr();
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "fit-perf_simple-0.txt"));
  EXPECT_TRUE(std::filesystem::exists(folder / "fit-perf_advanced-0.txt"));
  EXPECT_TRUE(std::filesystem::exists(folder / "fit-perf_trace-0.json"));
}

TEST(MakeProfiler, RefusesOthersInLightningsWords) {
  test::expect_error<ConfigError>(
      [] { make_profiler("smple"); },
      {"When passing string value for the `profiler` parameter of `Trainer`, it can only be one of "
       "['simple', 'advanced', 'trace']",
       "\"smple\"", "did you mean simple?"});
  test::expect_error<ConfigError>([] { make_profiler("pytorch"); }, {"`trace` writes a time line"});
}

}  // namespace
}  // namespace lockstep
