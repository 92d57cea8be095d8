// Progress bars: what they draw on a terminal, what they say elsewhere, and which a Trainer has.
#include <lockstep/train/callbacks/progress_bar.h>

#include <gmock/gmock.h>

#include <lockstep/base/env.h>

#include "support/expect_error.h"
#include "support/pseudo_terminal.h"
#include "train/callbacks/progress_bar.h"
#include "train/logging/terminal.h"
#include "train/slope.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const ProgressPass kTraining{.description = "Epoch 3", .done = 3, .total = 12, .elapsed = 6s};
const ProgressPass kStream{.description = "Epoch 0", .done = 3, .elapsed = 6s};

struct PlainBar : ProgressBar {
  using ProgressBar::ProgressBar;
  std::vector<std::string> lines(std::span<const ProgressPass> passes, const Metrics& metrics,
                                 std::size_t) const override {
    std::vector<std::string> found;
    for (const auto& pass : passes)
      found.push_back("<" + pass.description + " " + detail::place_text(pass) + ">");
    if (metrics.contains("mine")) found.back() += "mine";
    return found;
  }
  Metrics metrics(const TrainContext& context) const override {
    auto found = ProgressBar::metrics(context);
    found["mine"] = 1;
    return found;
  }
};

TEST(ProgressText, PlainLines) {
  EXPECT_EQ(detail::plain_line(kTraining, {{"loss", 0.5}}), "epoch 3: batch 3/12, 0.5 it/s, loss=0.5");
  EXPECT_EQ(detail::plain_line(kStream, {}), "epoch 0: batch 3/?, 0.5 it/s");
  EXPECT_EQ(detail::plain_line(kStream, {{"loss", -NAN}}), "epoch 0: batch 3/?, 0.5 it/s, loss=nan");
}

TEST(ProgressText, RowsOfEpochs) {
  const Metrics metrics{{"loss", 1}, {"loss_epoch", 1}, {"loss_step", 2}, {"val", 0.25}};
  const auto names = detail::row_names(metrics);
  EXPECT_THAT(names, ElementsAre("loss_epoch", "val"));
  EXPECT_EQ(detail::row_header(names), "epoch      step  loss_epoch         val   seconds");
  EXPECT_EQ(detail::row_text(3, 40, names, metrics, 1.5),
            "    3        40           1        0.25      1.50");
}

TEST(ProgressText, LongNamesLeaveValuesWhole) {
  const std::string name(150, 'n');
  EXPECT_EQ(detail::result_lines("metric", {{name, 12345678}})[3].substr(150), "                   12345678");
}

TEST(Terminal, CutsLinesToColumnsAndLeavesColoursWhole) {
  EXPECT_EQ(detail::cut_to("abcdef", 3), "abc");
  EXPECT_EQ(detail::cut_to("█━x", 2), "█━");
  EXPECT_EQ(detail::cut_to("\033[36mabc\033[0m", 2), "\033[36mab\033[0m");
}

class ProgressBars : public testing::SlopeTest {
 protected:
  void SetUp() override {
    env::set("TERM", "xterm");
    env::unset("NO_COLOR");
  }
  TrainerOptions with(std::shared_ptr<Callback> bar) {
    auto chosen = options();
    chosen.enable_progress_bar = true;
    if (bar) chosen.callbacks = {std::move(bar)};
    return chosen;
  }
  // Batches that take longer than a bar waits to be drawn anew.
  struct Slow : testing::SlopeImpl {
    torch::Tensor training_step(const Example& batch, StepContext& step) override {
      std::this_thread::sleep_for(110ms);
      step.log("shown", 0.25, {.prog_bar = true});
      return SlopeImpl::training_step(batch, step);
    }
    void validation_step(const Example& batch, StepContext& step) override {
      std::this_thread::sleep_for(110ms);
      SlopeImpl::validation_step(batch, step);
    }
    torch::Tensor predict_step(const Example& batch, StepContext& step) override {
      std::this_thread::sleep_for(110ms);
      return SlopeImpl::predict_step(batch, step);
    }
  };
  std::string drawn_by(std::shared_ptr<Callback> bar) {
    test::PseudoTerminal terminal;
    Trainer(with(std::move(bar))).fit(std::make_shared<Slow>(), batches(2), batches(2));
    return terminal.close();
  }
};

TEST_F(ProgressBars, ThePlainOneIsTheDefault) {
  const auto text = drawn_by(nullptr);
  EXPECT_THAT(text, HasSubstr("Epoch 0:  50%|██████████          | 1/2 ["));
  EXPECT_THAT(text, HasSubstr("shown=0.25"));
  EXPECT_THAT(text, HasSubstr("\r\033[KValidation:  50%|"));
  EXPECT_THAT(text, HasSubstr("epoch      step"));
  EXPECT_THAT(text, Not(HasSubstr("\033[1A")));
}

TEST_F(ProgressBars, TheRichOneHasALineForEachPassAndOneForMetrics) {
  const auto text = drawn_by(std::make_shared<RichProgressBar>());
  EXPECT_THAT(text, HasSubstr("Epoch 0 \033[38;5;99m━━━━━━━━━━━━━━━━━━━━\033[0m"));
  EXPECT_THAT(text, HasSubstr("Validation \033["));
  EXPECT_THAT(text, HasSubstr("shown=0.25"));
  EXPECT_THAT(text, HasSubstr("\033[1A\033[K"));  // several lines are taken away
}

TEST_F(ProgressBars, AreWithoutColoursWhereAsked) {
  env::set("NO_COLOR", "1");
  EXPECT_THAT(drawn_by(std::make_shared<RichProgressBar>()),
              AllOf(HasSubstr("Epoch 0 ━━━━━━━━━━"), Not(HasSubstr("\033[3"))));
}

TEST_F(ProgressBars, AreLinesOnATerminalThatCannotMove) {
  env::set("TERM", "dumb");
  EXPECT_THAT(drawn_by(nullptr), AllOf(HasSubstr("epoch      step"), Not(HasSubstr("\033"))));
}

TEST_F(ProgressBars, OnesOfTheProgramDrawWhatTheyWant) {
  const auto text = drawn_by(std::make_shared<PlainBar>());
  EXPECT_THAT(text, HasSubstr("<Epoch 0 1/2>mine"));
  EXPECT_THAT(text, HasSubstr("<Epoch 0 2/2>\r\n<Validation 1/2>mine"));
}

TEST_F(ProgressBars, LinesStayWhereAsked) {
  EXPECT_THAT(drawn_by(std::make_shared<PlainBar>(ProgressBarOptions{.leave = true})),
              HasSubstr("<Epoch 0 2/2>mine\r\n"));
  EXPECT_THAT(drawn_by(std::make_shared<PlainBar>()), Not(HasSubstr("<Epoch 0 2/2>mine\r\n")));
}

TEST_F(ProgressBars, RefreshRateCountsBatches) {
  const auto text = drawn_by(std::make_shared<PlainBar>(ProgressBarOptions{.refresh_rate = 2}));
  EXPECT_THAT(text, Not(HasSubstr("<Epoch 0 1/2>")));
  EXPECT_THAT(text, HasSubstr("<Epoch 0 2/2>"));
  EXPECT_THAT(drawn_by(std::make_shared<PlainBar>(ProgressBarOptions{.refresh_rate = 0})),
              AllOf(Not(HasSubstr("<")), HasSubstr("epoch      step")));
}

TEST_F(ProgressBars, CanBeDisabled) {
  const auto bar = std::make_shared<RichProgressBar>();
  bar->disable();
  EXPECT_FALSE(bar->is_enabled());
  EXPECT_THAT(drawn_by(bar), Not(HasSubstr("poch")));
}

TEST_F(ProgressBars, ShowPredictionToo) {
  test::PseudoTerminal terminal;
  Trainer(with(std::make_shared<PlainBar>())).predict(std::make_shared<Slow>(), batches(2));
  EXPECT_THAT(terminal.close(), HasSubstr("<Predicting 1/2>mine"));
}

TEST_F(ProgressBars, AreCutToNarrowTerminals) {
  test::PseudoTerminal terminal(20);
  Trainer(with(nullptr)).fit(std::make_shared<Slow>(), batches(2));
  EXPECT_THAT(terminal.close(), AllOf(HasSubstr("Epoch 0:  50%|█████\r"), Not(HasSubstr("it/s"))));
}

TEST_F(ProgressBars, AreSilentLinesWhereThereIsNoTerminal) {
  ::testing::internal::CaptureStdout();
  Trainer(with(std::make_shared<RichProgressBar>())).fit(model_, batches(2));
  const auto text = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, Not(HasSubstr("\033")));
  EXPECT_THAT(text, HasSubstr("epoch      step"));
}

TEST_F(ProgressBars, ATrainerHasOneOrNone) {
  auto two = with(std::make_shared<RichProgressBar>());
  two.callbacks.push_back(std::make_shared<TQDMProgressBar>());
  test::expect_error<ConfigError>([&] { Trainer(two).fit(model_, batches(1)); }, {"progress bars", "2"});
  auto none = with(std::make_shared<RichProgressBar>());
  none.enable_progress_bar = false;
  test::expect_error<ConfigError>([&] { Trainer(none).fit(model_, batches(1)); },
                                  {"progress bars", "enable_progress_bar"});
  test::expect_error<ConfigError>([] { TQDMProgressBar bar({.refresh_rate = -1}); }, {"refresh_rate", "-1"});
}

}  // namespace
}  // namespace lockstep
