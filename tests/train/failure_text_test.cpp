// What is said where a hook or a data set throws, and what is printed without a progress bar.
#include <gmock/gmock.h>
#include <lockstep/lockstep.h>

#include <stdexcept>
#include <string>

#include "base/memory_failure.h"
#include "train/slope.h"

namespace lockstep {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::Slope;
using testing::SlopeTest;

class FailureText : public SlopeTest {
 protected:
  // What is said of the exception that `call` throws.
  template <class Call>
  static std::string said_of(const Call& call) {
    try {
      call();
    } catch (const std::exception& error) {
      const auto text = detail::failure_text(error);
      return text.substr(0, text.find('\n'));
    }
    return "nothing was thrown";
  }
};

struct DislikingImpl : testing::SlopeImpl {
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    if (step.global_step() == 2) throw std::runtime_error("I do not like this batch");
    return SlopeImpl::training_step(batch, step);
  }
  void validation_step(const Example&, StepContext& step) override {
    if (step.batch_idx() == 1) throw std::runtime_error("nor this");
  }
};
TORCH_MODULE(Disliking);

TEST_F(FailureText, NamesTheStepThatThrew) {
  EXPECT_EQ(said_of([&] { Trainer(options()).fit(Disliking(), batches(4)); }),
            "I do not like this batch; in training_step of step 2 (epoch 0, batch 2)");
}

TEST_F(FailureText, NamesTheStepOfAnEvaluation) {
  EXPECT_EQ(said_of([&] { Trainer(options()).fit(Disliking(), batches(2), batches(2)); }),
            "nor this; in validation_step of step 2 (epoch 0, batch 1)");
  auto again = options();
  again.run.run_dir = folder_ / "other";
  EXPECT_EQ(said_of([&] { Trainer(again).validate(Disliking(), batches(2)); }),
            "nor this; in validation_step (batch 1)");
}

// Says that it has more samples than it has.
struct TooLong : Dataset<Example> {
  std::int64_t size() const override { return 9; }
  Example get_batch(std::span<const std::int64_t> indices) const override {
    return {.data = torch::ones({3, 1}).index_select(
                0, torch::tensor(std::vector(indices.begin(), indices.end()))),
            .target = {}};
  }
};

TEST_F(FailureText, NamesTheDataSetWithWorkersAndWithout) {
  for (const int workers : {0, 2}) {
    auto chosen = options();
    chosen.run.run_dir = folder_ / std::to_string(workers);
    const auto data = loader(std::make_shared<TooLong>(), {.batch_size = 1, .num_workers = workers});
    EXPECT_THAT(said_of([&] { Trainer(chosen).fit(Slope(), data); }),
                EndsWith("; in get_batch of the data set of step 3 (epoch 0, batch 3)"));
  }
}

TEST_F(SlopeTest, PrintsResultsWithoutAProgressBar) {
  ::testing::internal::CaptureStdout();
  Trainer(options()).test(model_, batches(2));
  const auto text = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, HasSubstr("Test metric"));
  EXPECT_THAT(text, HasSubstr("mean"));
}

}  // namespace
}  // namespace lockstep
