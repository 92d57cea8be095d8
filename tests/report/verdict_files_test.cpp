#include "report/run_files.h"

#include <gmock/gmock.h>

#include <lockstep/base/error.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep::detail {
namespace {

using ::testing::ElementsAre;

class VerdictFiles : public ::testing::Test {
 protected:
  std::filesystem::path file(std::string_view text) { return folder_.file("verdict.json", text); }

  test::TemporaryFolder folder_;
};

TEST_F(VerdictFiles, ReadsASummary) {
  const auto summary =
      read_summary(file(R"({"status": "success", "strategy": "ddp", "world_size": 2, "seconds": 0.5,
    "samples_per_second": 8628.0, "peak_rss_bytes_per_rank": [100, 90], "metrics": {"loss": null},
    "versions": {"libtorch": "2.13.0"}, "xla": {"compile_seconds": 1.5}, "something": "new"})"));
  EXPECT_EQ(summary.status, "success");
  EXPECT_EQ(summary.world_size, 2);
  EXPECT_EQ(summary.samples_per_second, 8628);
  EXPECT_THAT(summary.peak_rss_bytes_per_rank, ElementsAre(100, 90));
  EXPECT_EQ(summary.versions.at("libtorch"), "2.13.0");
  EXPECT_EQ(summary.xla.at("compile_seconds"), 1.5);
  EXPECT_EQ(summary.steps, std::nullopt);
}

TEST_F(VerdictFiles, ReadsAFailure) {
  const auto failure =
      read_failure(file(R"({"rank": 1, "node": 0, "pid": 7, "signal": 9, "signal_name": "SIGKILL",
    "collective": "all_reduce", "sequence": 33, "in_collective": true, "step": 20, "error": "", "message": "rank 1 died",
    "others": [{"rank": 0, "exit_code": 3, "error": "lost a peer", "collective": "", "stopped_by_launcher": true}]})"));
  EXPECT_EQ(failure.message, "rank 1 died");
  ASSERT_EQ(failure.ranks.size(), 2U);
  EXPECT_EQ(failure.ranks[0].end, "SIGKILL");
  EXPECT_EQ(failure.ranks[0].collective, "in all_reduce seq 33");
  EXPECT_EQ(failure.ranks[0].step, 20);
  EXPECT_EQ(failure.ranks[1].end, "stopped by the launcher (exit code 3)");
  EXPECT_EQ(failure.ranks[1].collective, "");
  EXPECT_EQ(failure.ranks[1].error, "lost a peer");
}

TEST_F(VerdictFiles, NamesFileAndLineOfWhatIsNoJson) {
  test::expect_error<DataError>([&] { read_summary(file("{\n\"status\": \"success\",\n\"steps\": }\n")); },
                                {"verdict.json:3 is no JSON"});
  test::expect_error<DataError>([&] { read_failure(file("")); }, {"verdict.json:1 is no JSON"});
  test::expect_error<DataError>([&] { read_summary(file("[1]")); },
                                {"verdict.json:1 holds no object", "array"});
}

TEST_F(VerdictFiles, NamesFileAndKeyOfAnotherType) {
  test::expect_error<DataError>([&] { read_summary(file(R"({"world_size": "two"})")); },
                                {"verdict.json", "'world_size'"});
  test::expect_error<DataError>([&] { read_summary(file(R"({"peak_rss_bytes_per_rank": {"0": 1}})")); },
                                {"verdict.json", "'peak_rss_bytes_per_rank'"});
  test::expect_error<DataError>([&] { read_failure(file(R"({"others": [7]})")); },
                                {"verdict.json", "'others'"});
  test::expect_error<IoError>([&] { read_summary(folder_ / "none.json"); }, {"none.json"});
}

}  // namespace
}  // namespace lockstep::detail
