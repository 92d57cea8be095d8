#include <gmock/gmock.h>
#include <lockstep/report/report.h>

#include <algorithm>
#include <sstream>

#include <lockstep/base/error.h>

#include "report/braille.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

RunRecord falling(const std::string& folder) {
  RunRecord run{.folder = folder, .curves = {{.name = "acc", .points = {{0, 0, 0.5}}}, {.name = "loss"}}};
  for (std::int64_t step = 0; step <= 100; ++step)
    run.curves[1].points.push_back({.step = step, .value = static_cast<double>(100 - step)});
  return run;
}

std::size_t letters(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; }));
}

TEST(Braille, DrawsDots) {
  detail::BrailleCanvas canvas(2, 1);
  EXPECT_EQ(canvas.line(0, false), "  ");
  canvas.draw_line(0, 0, 0, 3, 1);  // the left column
  canvas.draw_line(3, 3, 3, 3, 1);  // the upper right corner
  EXPECT_EQ(canvas.line(0, false), "\u2847\u2808");
  canvas.draw_line(-5, 9, 90, 90, 1);  // outside
  EXPECT_EQ(letters(canvas.line(0, false)), 2U);
  EXPECT_EQ(canvas.line(0, true).substr(0, 10), "\033[38;5;1m\xE2");
}

TEST(Plot, ACurveFallsFromTheUpperLeftToTheLowerRight) {
  const auto drawn = lines(plot_curves({falling("/a")}, {.metrics = {"loss"}}, {.columns = 51, .rows = 10}));
  ASSERT_GE(drawn.size(), 12U);
  EXPECT_EQ(drawn[0], "loss  a 0");
  EXPECT_THAT(drawn[1], Not(HasSubstr("\u2502 ")));
  EXPECT_THAT(drawn[10], HasSubstr("0 \u2502"));
  EXPECT_EQ(letters(drawn[10]), 51U);
  EXPECT_THAT(drawn[10], HasSubstr("\u2502 "));
  EXPECT_THAT(drawn[11], HasSubstr("step 100"));
}

TEST(Plot, WithColoursRunsShareADrawing) {
  const std::vector runs{falling("/a"), falling("/b")};
  const ReportOptions options{.metrics = {"loss"}};
  const auto plain = plot_curves(runs, options, {.columns = 60, .rows = 5});
  const auto colourful = plot_curves(runs, options, {.columns = 60, .rows = 5, .colour = true});
  EXPECT_EQ(lines(plain).size(), 2 * 7 + 1U);
  EXPECT_THAT(plain, Not(HasSubstr("\033")));
  EXPECT_EQ(lines(colourful).size(), 7 + 1U);
  EXPECT_THAT(colourful, HasSubstr("\033[38;5;166m"));
}

TEST(Plot, DrawsAllMetricsOrThoseThatAreAskedFor) {
  const auto all = plot_curves({falling("/a")});
  EXPECT_THAT(all, HasSubstr("acc"));
  EXPECT_THAT(all, HasSubstr("loss"));
  EXPECT_THAT(plot_curves({falling("/a")}, {.metrics = {"acc"}}), Not(HasSubstr("loss")));
  EXPECT_THAT(plot_curves({RunRecord{.folder = "/a"}}), HasSubstr("nothing was logged"));
  test::expect_error<ConfigError>([&] { plot_curves({falling("/a")}, {.metrics = {"lss"}}); },
                                  {"did you mean loss?"});
}

TEST(Plot, ATerminalObeysNoName) {
  auto run = falling("/a\033[2J");
  run.curves[1].name = "loss\033[2J";
  EXPECT_THAT(plot_curves({run}), Not(HasSubstr("\033")));
}

TEST(Plot, AnySizeWillDo) {
  EXPECT_FALSE(plot_curves({falling("/a")}, {}, {.columns = -1, .rows = -1}).empty());
  EXPECT_LT(plot_curves({falling("/a")}, {}, {.columns = 1 << 30, .rows = 1 << 30}).size(), 2'000'000U);
}

}  // namespace
}  // namespace lockstep
