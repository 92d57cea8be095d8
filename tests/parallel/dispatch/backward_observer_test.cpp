// Backward passes are followed from begin to end, whatever happens in between.
#include <lockstep/parallel/dispatch/engine_hooks.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <thread>

#include <lockstep/base/error.h>
#include <lockstep/parallel/autograd.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

using Log = std::vector<std::string>;

class LoggingObserver final : public BackwardObserver {
 public:
  explicit LoggingObserver(Log& log, std::string name = "") : log_(log), name_(std::move(name)) {}
  void on_backward_begin(const BackwardCall&) override {
    log_.push_back("begin" + name_);
    if (fails_at_begin) throw DataError("test", {.what = "begin" + name_});
  }
  void on_backward_end(BackwardEnd end) override {
    log_.push_back((end == BackwardEnd::kDone ? "done" : "failed") + name_);
    if (fails_at_end) throw DataError("test", {.what = "end" + name_});
  }
  bool fails_at_begin = false;
  bool fails_at_end = false;

 private:
  Log& log_;
  std::string name_;
};

// Runs a backward of its own inside of backward, as reentrant checkpoints do.
struct Nested : torch::autograd::Function<Nested> {
  static at::Tensor forward(torch::autograd::AutogradContext*, at::Tensor x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    const at::AutoGradMode grad_mode(true);
    const auto inner = at::ones({2}).set_requires_grad(true);
    (inner * inner).sum().backward();
    return {gradients[0] * inner.grad()};
  }
};

at::Tensor trained_tensor() { return at::full({2}, 3.0f).set_requires_grad(true); }

at::Tensor failing_loss(const at::Tensor& weight) {
  const auto hidden = weight * 2;
  hidden.register_hook([](const at::Tensor&) { throw DataError("test", {.what = "no such sample"}); });
  return hidden.sum();
}

TEST(BackwardObserver, BeginsBeforeTheFirstAndEndsAfterTheLastGradient) {
  Log log;
  LoggingObserver observer(log);
  const ScopedBackwardObserver scope(observer);
  const auto weight = trained_tensor();
  register_post_accumulate_grad_hook(weight, [&](const at::Tensor&) { log.push_back("gradient"); });
  for (int pass = 0; pass < 2; ++pass) weight.sum().backward();
  EXPECT_THAT(log, ElementsAre("begin", "gradient", "done", "begin", "gradient", "done"));
}

// An observer may bring others when a backward begins, and let them go when it ends.
TEST(BackwardObserver, ScopesMayComeAndGoWhileABackwardBegins) {
  Log log;
  std::vector<std::unique_ptr<LoggingObserver>> others;
  std::vector<std::unique_ptr<ScopedBackwardObserver>> scopes;
  struct Bringing final : BackwardObserver {
    explicit Bringing(std::function<void()> what) : bring(std::move(what)) {}
    void on_backward_begin(const BackwardCall&) override { bring(); }
    void on_backward_end(BackwardEnd) override {}
    std::function<void()> bring;
  };
  Bringing bringing([&] {
    for (int i = 0; i < 8; ++i) {
      others.push_back(std::make_unique<LoggingObserver>(log, std::to_string(i)));
      scopes.push_back(std::make_unique<ScopedBackwardObserver>(*others.back()));
    }
  });
  LoggingObserver last(log, "last");
  const ScopedBackwardObserver scope(bringing);
  auto last_scope = std::make_unique<ScopedBackwardObserver>(last);
  trained_tensor().sum().backward();
  EXPECT_THAT(log, ElementsAre("beginlast", "donelast"));
  log.clear();
  bringing.bring = [&] {
    scopes.clear();
    last_scope.reset();
  };
  trained_tensor().sum().backward();
  EXPECT_THAT(log, IsEmpty());
}

TEST(BackwardObserver, NestsInTheOrderOfRegistration) {
  Log log;
  LoggingObserver first(log, "1"), second(log, "2");
  const ScopedBackwardObserver first_scope(first), second_scope(second);
  trained_tensor().sum().backward();
  EXPECT_THAT(log, ElementsAre("begin1", "begin2", "done2", "done1"));
}

TEST(BackwardObserver, TakesANestedBackwardAsPartOfTheOuterOne) {
  Log log;
  LoggingObserver observer(log);
  const ScopedBackwardObserver scope(observer);
  const auto weight = trained_tensor();
  Nested::apply(Nested::apply(weight)).sum().backward();
  EXPECT_TRUE(weight.grad().equal(at::full({2}, 4.0f)));
  EXPECT_THAT(log, ElementsAre("begin", "done"));
}

TEST(BackwardObserver, EndsWhenBackwardThrowsAndFollowsTheNextOne) {
  Log log;
  LoggingObserver first(log, "1"), second(log, "2");
  const ScopedBackwardObserver first_scope(first), second_scope(second);
  first.fails_at_end = true;
  EXPECT_THAT([] { failing_loss(trained_tensor()).backward(); },
              ThrowsMessage<DataError>(HasSubstr("no such sample")));
  EXPECT_THAT(log, ElementsAre("begin1", "begin2", "failed2", "failed1"));
  log.clear();
  first.fails_at_end = false;
  trained_tensor().sum().backward();
  EXPECT_THAT(log, ElementsAre("begin1", "begin2", "done2", "done1"));
}

TEST(BackwardObserver, ItsErrorsLeaveBackwardAndTheOthersAreTold) {
  Log log;
  LoggingObserver first(log, "1"), second(log, "2"), third(log, "3");
  const ScopedBackwardObserver first_scope(first), second_scope(second), third_scope(third);
  const auto weight = trained_tensor();
  second.fails_at_begin = true;
  EXPECT_THAT([&] { weight.sum().backward(); }, ThrowsMessage<DataError>(HasSubstr("begin2")));
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_THAT(log, ElementsAre("begin1", "begin2", "failed1"));
  log.clear();
  second.fails_at_begin = false;
  second.fails_at_end = true;
  EXPECT_THAT([&] { weight.sum().backward(); }, ThrowsMessage<DataError>(HasSubstr("end2")));
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_THAT(log, ElementsAre("begin1", "begin2", "begin3", "done3", "done2", "failed1"));
}

TEST(BackwardObserver, SeesItsOwnThreadOnly) {
  Log log;
  LoggingObserver observer(log);
  const ScopedBackwardObserver scope(observer);
  Log other_log;
  std::thread([&] {
    LoggingObserver other(other_log);
    const ScopedBackwardObserver other_scope(other);
    trained_tensor().sum().backward();
  }).join();
  EXPECT_THAT(log, IsEmpty());
  EXPECT_THAT(other_log, ElementsAre("begin", "done"));
}

TEST(BackwardObserver, StopsWithItsScope) {
  Log log;
  LoggingObserver observer(log);
  { const ScopedBackwardObserver scope(observer); }
  trained_tensor().sum().backward();
  EXPECT_THAT(log, IsEmpty());
}

// What an engine needs to know which gradients will come.
struct LeafCounter final : BackwardObserver {
  void on_backward_begin(const BackwardCall& call) override {
    accumulates = call.accumulates;
    inputs = call.inputs.size();
    leaves = 0;
    std::vector<torch::autograd::Node*> open;
    for (const auto& root : call.roots) open.push_back(root.function.get());
    while (!open.empty()) {
      auto* node = open.back();
      open.pop_back();
      if (!node) continue;
      if (dynamic_cast<torch::autograd::AccumulateGrad*>(node)) ++leaves;
      for (const auto& edge : node->next_edges()) open.push_back(edge.function.get());
    }
  }
  void on_backward_end(BackwardEnd) override {}
  int leaves = 0;
  std::size_t inputs = 0;
  bool accumulates = false;
};

TEST(BackwardObserver, SeesTheRootsOfTheGraph) {
  LeafCounter counter;
  const ScopedBackwardObserver scope(counter);
  const auto first = trained_tensor(), second = trained_tensor(), unused = trained_tensor();
  (first + second * 2).sum().backward();
  EXPECT_EQ(counter.leaves, 2);
  EXPECT_EQ(counter.inputs, 0u);
  EXPECT_TRUE(counter.accumulates);
  autograd_grad((first + second + unused).sum(), {first});
  EXPECT_EQ(counter.leaves, 3);
  EXPECT_EQ(counter.inputs, 1u);
  EXPECT_FALSE(counter.accumulates);
}

TEST(AutogradEngine, IsInstalledOnceByAnyThread) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([] { install_autograd_engine(); });
  for (auto& thread : threads) thread.join();
  auto* engine = &torch::autograd::Engine::get_default_engine();
  EXPECT_NE(engine, &torch::autograd::Engine::get_base_engine());
  install_autograd_engine();
  EXPECT_EQ(&torch::autograd::Engine::get_default_engine(), engine);
}

struct ForeignEngine final : torch::autograd::Engine {
  ~ForeignEngine() override { stop(); }
  static torch::autograd::Engine& get() {
    static auto* engine = new ForeignEngine;
    return *engine;
  }
};

TEST(AutogradEngine, RefusesToWorkWhereAnotherOneIsInPlace) {
  install_autograd_engine();
  static auto& ours = torch::autograd::Engine::get_default_engine();
  torch::autograd::set_default_engine_stub(&ForeignEngine::get);
  Log log;
  LoggingObserver observer(log);
  EXPECT_THAT([&] { const ScopedBackwardObserver scope(observer); },
              ThrowsMessage<ConfigError>(HasSubstr("another engine")));
  torch::autograd::set_default_engine_stub([]() -> torch::autograd::Engine& { return ours; });
  trained_tensor().sum().backward();
  EXPECT_THAT(log, IsEmpty()) << "an observer that was refused is followed nevertheless";
}

// In a process of its own, where no test before has installed the engine.
TEST(AutogradEngineDeathTest, RefusesToComeDuringABackward) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto weight = trained_tensor();
        weight.register_hook([](const at::Tensor&) { install_autograd_engine(); });
        try {
          weight.sum().backward();
        } catch (const ConfigError& error) {
          std::fputs(error.what(), stderr);
          std::_Exit(7);
        }
      },
      ::testing::ExitedWithCode(7), "a backward that is running.*before the first backward");
}

TEST(AutogradEngineDeathTest, RefusesToReplaceAnotherOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        torch::autograd::set_default_engine_stub(&ForeignEngine::get);
        try {
          install_autograd_engine();
        } catch (const ConfigError& error) {
          std::fputs(error.what(), stderr);
          std::_Exit(7);
        }
      },
      ::testing::ExitedWithCode(7), "another engine, such as that of Python's torch");
}

}  // namespace
}  // namespace lockstep
