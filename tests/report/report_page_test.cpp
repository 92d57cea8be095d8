#include <gmock/gmock.h>
#include <lockstep/report/report.h>

#include <limits>
#include <map>

#include <lockstep/base/error.h>
#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

RunRecord run(const std::string& folder, std::vector<MetricCurve> curves) {
  return {.folder = folder, .curves = std::move(curves)};
}

MetricCurve curve(const std::string& name, std::size_t points) {
  MetricCurve curve{.name = name};
  for (std::size_t i = 0; i < points; ++i)
    curve.points.push_back(
        {.step = static_cast<std::int64_t>(i), .value = 1.0 / static_cast<double>(i % 977 + 1)});
  return curve;
}

/// What stands beside the drawings, by the name of the metric.
std::map<std::string, json> charts(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" class=\"points\">";
  std::map<std::string, json> charts;
  for (auto at = page.find(begin); at != std::string::npos; at = page.find(begin, at + 1)) {
    const auto text = page.substr(at + begin.size(), page.find("</script>", at) - at - begin.size());
    auto chart = json::parse(text);
    charts[chart.at("name")] = chart.at("series");
  }
  return charts;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

TEST(ReportPage, HasTheValuesOfAllRuns) {
  const auto page = report_page({run("/a", {{"loss", {{4, 0, 0.1}, {9, 0, 1.0 / 3}}}}),
                                 run("/b", {{"acc", {{9, 0, 0.5}}}, {"loss", {{4, 0, 7}}}})});
  const auto drawn = charts(page);
  ASSERT_EQ(drawn.size(), 2U);
  EXPECT_EQ(drawn.at("loss"),
            json::parse(R"([{"run":0,"step":[4,9],"epoch":[0.5,1.0],"value":[0.1,0.3333333333333333]},
                                              {"run":1,"step":[4],"epoch":[0.5],"value":[7.0]}])"));
  EXPECT_EQ(drawn.at("acc")[0].at("run"), 1);
  EXPECT_EQ(count(page, "<svg "), 4U);  // over steps and over epochs
}

TEST(ReportPage, NoTextOfARunIsMarkup) {
  const std::string evil = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\xff";
  auto hostile = run("/runs/" + evil, {{evil, {{1, 0, 2}}}, {"lr-" + evil, {{1, 0, 2}}}});
  hostile.summary = RunSummary{
      .status = evil, .strategy = evil, .precision = evil, .comm_backend = evil, .versions = {{evil, evil}}};
  hostile.failure = RunFailure{.message = evil, .ranks = {{.end = evil, .collective = evil, .error = evil}}};
  hostile.config = {{evil, evil}};
  hostile.times = {{.stage = evil, .ranks = {{.span_s = 1}}}};
  auto other = hostile;
  other.times.clear();
  other.actions = {{.name = evil, .total_s = 1}};
  other.config = {{evil, evil + "2"}};
  const auto page = report_page({hostile, other}, {.title = evil});
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_EQ(count(page, "<script"), 3U);  // two charts' points and the page's own
  EXPECT_EQ(count(page, "</script>"), 3U);
  EXPECT_GE(count(page, "&lt;img src=x onerror=alert(2)&gt;\uFFFD"), 15U);
  EXPECT_EQ(charts(page).size(), 2U);
}

TEST(ReportPage, AsksNoNetwork) {
  const auto page = report_page({run("/a", {curve("loss", 10)})});
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy\" content=\"default-src 'none';"));
  EXPECT_EQ(count(page, "http"), count(page, "http-equiv") + count(page, "http://www.w3.org/2000/svg"));
  EXPECT_THAT(page, Not(HasSubstr("src=\"")));
}

TEST(ReportPage, StaysSmall) {
  constexpr std::size_t kLimit = 2'000'000;
  EXPECT_LT(report_page({run("/a", {curve("loss", 1'000'000)})}).size(), 200'000U);
  std::vector<MetricCurve> many;
  for (int i = 1000; i < 1400; ++i) many.push_back(curve("metric_" + std::to_string(i), 5000));
  const auto page = report_page({run("/a", many), run("/b", many), run("/c", many)});
  EXPECT_LT(page.size(), kLimit);
  EXPECT_THAT(page, HasSubstr("250 more metrics are not drawn"));
  EXPECT_EQ(charts(report_page({run("/a", many)}, {.metrics = {"metric_1399"}})).size(), 1U);
}

TEST(ReportPage, SaysWhatIsMissing) {
  const auto page = report_page({run("/a", {})});
  EXPECT_THAT(page, HasSubstr("No trace in this run: train with --trainer.profiler trace"));
  EXPECT_THAT(page, HasSubstr("No metrics.csv"));
  EXPECT_THAT(page, HasSubstr("a has no summary.json: it is still running, or was stopped"));
  EXPECT_THAT(page, HasSubstr("No run has a config.yaml"));
}

TEST(ReportPage, SaysWhereALossWasNoNumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto page = report_page({run("/a", {{"loss", {{1, 0, 2}, {7, 0, nan}, {8, 0, nan}}}})});
  EXPECT_THAT(page, HasSubstr("2 values are no finite number, first at step 7"));
  EXPECT_EQ(charts(page).at("loss")[0].at("step"), json::parse("[1]"));
  EXPECT_EQ(charts(report_page({run("/a", {{"loss", {{7, 0, nan}}}})})).at("loss")[0].at("step"),
            json::array());
}

TEST(ReportPage, MarksOptionsThatDiffer) {
  auto first = run("/a", {}), second = run("/b", {});
  first.config = {{"run_dir", "/a"}, {"lr", "0.1"}, {"seed", "1"}};
  second.config = {{"run_dir", "/b"}, {"lr", "0.2"}, {"seed", "1"}, {"only", "here"}};
  const auto page = report_page({first, second, run("/c", {})});
  EXPECT_EQ(count(page, "<tr class=\"differs\"><th class=\"key\">"), 2U);
  EXPECT_EQ(count(page, "<th class=\"key\">lr</th>"), 2U);  // among the differences and among all
  EXPECT_EQ(count(page, "<th class=\"key\">only</th>"), 2U);
  EXPECT_EQ(count(page, "<th class=\"key\">seed</th>"), 1U);
  EXPECT_EQ(count(page, "<th class=\"key\">run_dir</th>"), 1U);
}

TEST(ReportPage, SplitsTheTimeOfEachRank) {
  auto traced = run("/a", {});
  traced.times = {
      {.stage = "fit",
       .ranks = {{.rank = 0, .span_s = 10, .compute_s = 5, .communication_s = 3, .data_s = 1},
                 {.rank = 1, .span_s = 10, .compute_s = 6, .communication_s = 2, .data_s = 1}},
       .skew = ArrivalSkew{
           .collectives = 40, .median_s = 0.002, .p90_s = 0.03, .last_rank = 1, .last_rank_share = 0.75}}};
  const auto page = report_page({traced});
  EXPECT_THAT(page, HasSubstr("title=\"compute 5 s, 50 %\""));
  EXPECT_THAT(page, HasSubstr("title=\"communication 3 s, 30 %\""));
  EXPECT_THAT(page, HasSubstr("title=\"other 1 s, 10 %\""));
  EXPECT_THAT(page, HasSubstr("Rank 1 computes longest, 20 % more than rank 0."));
  EXPECT_THAT(page, HasSubstr("Ranks came to 40 collectives within 2 ms of each other"));
  EXPECT_THAT(page, HasSubstr("Rank 1 came last in 75 % of them"));
  EXPECT_THAT(page, Not(HasSubstr("No trace")));
}

TEST(ReportPage, ShowsEachRanksMemoryAndManyRanksByThree) {
  auto small = run("/a", {}), large = run("/b", {});
  small.summary = RunSummary{.peak_rss_bytes_per_rank = {1 << 20, 3 << 20}};
  large.summary = RunSummary{.peak_rss_bytes_per_rank = std::vector<std::int64_t>(1000, 2 << 20)};
  const auto page = report_page({small, large});
  EXPECT_THAT(page, HasSubstr("<td class=\"word\">rank 1</td>"));
  EXPECT_THAT(page, HasSubstr("3.0 MiB"));
  EXPECT_THAT(page, HasSubstr("median rank"));
  EXPECT_THAT(page, Not(HasSubstr("rank 999")));
}

TEST(ReportPage, ShowsTheFailure) {
  auto failed = run("/a", {});
  failed.failure =
      RunFailure{.message = "rank 1 killed by SIGKILL", .ranks = {{.rank = 1, .end = "SIGKILL"}}};
  const auto page = report_page({failed, run("/b", {})});
  EXPECT_THAT(page, HasSubstr("<p class=\"message\">rank 1 killed by SIGKILL</p>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"word status bad\">failed</td>"));
  EXPECT_THAT(report_page({run("/b", {})}), Not(HasSubstr("Failures")));
}

TEST(ReportPage, RefusesMetricsThatNobodyHas) {
  const std::vector runs{run("/a", {curve("train_loss", 3)})};
  test::expect_error<ConfigError>([&] { report_page(runs, {.metrics = {"train_los"}}); },
                                  {"'train_los'", "did you mean train_loss?"});
  test::expect_error<ConfigError>([&] { report_page({}); }, {"no run"});
}

TEST(ReportPage, ReplacesAFileAsAWhole) {
  const test::TemporaryFolder folder;
  const auto file = folder.file("report.html", "old");
  const std::vector runs{run("/a", {curve("loss", 3)})};
  write_report(runs, file);
  EXPECT_EQ(test::content(file), report_page(runs));
  EXPECT_EQ(folder.entries(), 1);
  test::expect_error<IoError>([&] { write_report(runs, folder / "none" / "report.html"); }, {"report.html"});
}

RunRecord seeded(const std::string& folder, const std::string& seed) {
  auto record = run(folder, {{"loss", {{1, 0, 2}}}});
  record.config = {{"seed_everything", seed}, {"trainer.max_epochs", "3"}};
  return record;
}

TEST(ReportPage, SaysWhereRunsWereNotSeededAlike) {
  const auto unseeded = HasSubstr("Not seeded: b: what differs between these runs may be chance");
  const auto different = HasSubstr("Seeded differently (1, 2)");
  EXPECT_THAT(report_page({seeded("/a", "1"), seeded("/b", "null")}), unseeded);
  EXPECT_THAT(plot_curves({seeded("/a", "1"), seeded("/b", "null")}, {}, {.columns = 200}), unseeded);
  EXPECT_THAT(report_page({seeded("/a", "1"), seeded("/b", "2")}), different);
  const auto says_nothing = Not(HasSubstr("may be chance"));
  EXPECT_THAT(report_page({seeded("/a", "1"), seeded("/b", "1")}), says_nothing);
  EXPECT_THAT(report_page({seeded("/a", "null")}), says_nothing);          // nothing to compare
  EXPECT_THAT(report_page({run("/a", {}), run("/b", {})}), says_nothing);  // nothing is known
  EXPECT_THAT(report_page({seeded("/a", "1"), seeded("/b", "null")}, {.notes = false}), says_nothing);
}

}  // namespace
}  // namespace lockstep
