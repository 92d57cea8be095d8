// LibTorch's profiler on the time line of a program without a Trainer.
#include <lockstep/train/pytorch_profiler.h>

#include <gmock/gmock.h>

#include <set>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>
#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "support/json_file.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::Not;

// The names of the events of LibTorch in the file that it writes.
std::set<std::string> operators_in(PyTorchProfiler& profiler) {
  std::set<std::string> names;
  const auto trace = test::json_of(profiler.write());
  for (const auto& event : trace.at("traceEvents")) {
    if (event.value("cat", "") == "libtorch") names.insert(event.at("name").get<std::string>());
  }
  return names;
}

TEST(PyTorchProfiler, MeasuresTheStepsThatAreAskedFor) {
  const test::TemporaryFolder folder;
  PyTorchProfiler profiler({.dirpath = folder.path(), .wait = 1, .active = 2});
  profiler.setup("fit", 0);
  auto x = torch::randn({8}), y = x;
  y = x.sin();
  EXPECT_FALSE(profiler.is_active());
  profiler.step();
  EXPECT_TRUE(profiler.is_active());
  y = x.cos();
  profiler.step();
  y = x.tan();
  profiler.step();
  EXPECT_FALSE(profiler.is_active());
  y = x.exp();
  const auto names = operators_in(profiler);
  EXPECT_THAT(names, Contains("aten::cos"));
  EXPECT_THAT(names, Contains("aten::tan"));
  EXPECT_THAT(names, Not(Contains("aten::sin")));
  EXPECT_THAT(names, Not(Contains("aten::exp")));
  EXPECT_THAT(operators_in(profiler), ::testing::IsEmpty()) << "a file has what came since the one before";
}

TEST(PyTorchProfiler, BeginsAnewWithEachStage) {
  const test::TemporaryFolder folder;
  PyTorchProfiler profiler({.dirpath = folder.path(), .wait = 0, .active = 1});
  for (const char* const stage : {"fit", "test"}) {
    profiler.setup(stage, 0);
    EXPECT_TRUE(profiler.is_active());
    const auto y = torch::randn({8}).sin();
    EXPECT_THAT(operators_in(profiler), Contains("aten::sin")) << "an open window ends with the file";
    EXPECT_FALSE(profiler.is_active());
  }
}

TEST(PyTorchProfiler, RefusesStepsThatAreNone) {
  test::expect_error<ConfigError>([] { PyTorchProfiler({.wait = -1}); }, {"wait >= 0", "wait -1"});
  test::expect_error<ConfigError>([] { PyTorchProfiler({.active = 0}); }, {"active >= 1", "active 0"});
}

}  // namespace
}  // namespace lockstep
