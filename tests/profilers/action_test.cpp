#include <gtest/gtest.h>
#include <lockstep/profilers/profiler.h>

#include <thread>

namespace lockstep {
namespace {

TEST(Action, IsTheSameForTheSameName) {
  const Action first("action_test.same");
  EXPECT_EQ(first, Action(std::string("action_test.") + "same"));
  EXPECT_NE(first, Action("action_test.other"));
  EXPECT_EQ(first.name(), "action_test.same");
}

TEST(Action, KeepsItsFirstCategory) {
  EXPECT_EQ(Action("action_test.hook").category(), ActionCategory::kHook);
  EXPECT_EQ(Action("action_test.data", ActionCategory::kData).category(), ActionCategory::kData);
  EXPECT_EQ(Action("action_test.data").category(), ActionCategory::kData);
}

TEST(Action, HasItsPlaceInTheListOfAll) {
  const Action action("action_test.place");
  EXPECT_EQ(Action::all().at(action.index()), action);
}

TEST(Action, IsRegisteredOnceByManyThreads) {
  std::vector<Action> seen(8, Action("action_test.threads"));
  {
    std::vector<std::jthread> threads;
    for (Action& mine : seen) threads.emplace_back([&mine] { mine = Action("action_test.raced"); });
  }
  for (const Action& action : seen) EXPECT_EQ(action, seen.front());
}

TEST(Action, HooksHaveLightningsNames) {
  EXPECT_EQ(hook_action_name("Strategy", "DdpStrategy", "backward"), "[Strategy]DdpStrategy.backward");
}

TEST(Action, CategoriesHaveNames) {
  EXPECT_EQ(category_name(ActionCategory::kHook), "hook");
  EXPECT_EQ(category_name(ActionCategory::kCollective), "collective");
  EXPECT_EQ(category_name(ActionCategory::kOperator), "operator");
  EXPECT_EQ(category_name(ActionCategory::kData), "data");
  EXPECT_EQ(category_name(ActionCategory::kCheckpoint), "checkpoint");
}

}  // namespace
}  // namespace lockstep
