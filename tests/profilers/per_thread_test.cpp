#include <gtest/gtest.h>
#include <pthread.h>

#include <latch>
#include <thread>

#include "profilers/call_records.h"

namespace lockstep::detail {
namespace {

template <class T>
int count_of(const PerThread<T>& set) {
  int count = 0;
  set.for_each([&](const auto&, const T&) { ++count; });
  return count;
}

TEST(PerThread, GivesAThreadTheSameObject) {
  PerThread<int> first, second;
  int* const mine = first.local();
  int* const other = second.local();
  EXPECT_NE(mine, other);
  EXPECT_EQ(first.local(), mine);
  EXPECT_EQ(second.local(), other);
  EXPECT_EQ(count_of(first), 1);
}

TEST(PerThread, GivesThreadsObjectsOfTheirOwn) {
  PerThread<int> set;
  std::latch all(4);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        ++*set.local();
        all.arrive_and_wait();
        ++*set.local();
      });
    }
  }
  EXPECT_EQ(count_of(set), 4);
  set.for_each([](const auto&, int value) { EXPECT_EQ(value, 2); });
}

TEST(PerThread, AThreadTakesThePlaceOfOneThatEnded) {
  PerThread<int> set;
  for (int i = 0; i < 50; ++i) std::jthread([&] { ++*set.local(); }).join();
  EXPECT_EQ(count_of(set), 1);
  set.for_each([](const auto&, int value) { EXPECT_EQ(value, 50); });
}

TEST(PerThread, PlacesAreOfOneThreadName) {
  PerThread<int> set;
  for (const char* name : {"one", "two", "one"}) {
    std::jthread([&] {
      ::pthread_setname_np(::pthread_self(), name);
      ++*set.local();
    }).join();
  }
  std::vector<std::pair<std::string, int>> found;
  set.for_each([&](const std::string& name, int value) { found.emplace_back(name, value); });
  EXPECT_EQ(found, (std::vector<std::pair<std::string, int>>{{"one", 2}, {"two", 1}}));
}

TEST(PerThread, MayDieBeforeItsThreads) {
  std::jthread thread([] {
    for (int i = 0; i < 100; ++i) {
      PerThread<int> set;
      EXPECT_EQ(*set.local(), 0);
      *set.local() = 1;
    }
  });
}

struct RecordsAtTheEnd {
  PerThread<int>* set = nullptr;
  ~RecordsAtTheEnd() {
    if (set) set->local();  // null or not: no crash
  }
};

TEST(PerThread, MayBeAskedWhileTheThreadEnds) {
  PerThread<int> set;
  std::jthread([&] {
    thread_local RecordsAtTheEnd last;
    last.set = &set;
    EXPECT_NE(set.local(), nullptr);
  }).join();
  EXPECT_EQ(count_of(set), 1);
}

TEST(PerThread, HasNothingToGiveWhenMakingFails) {
  PerThread<int> set([]() -> std::unique_ptr<int> { throw std::bad_alloc(); });
  EXPECT_EQ(set.local(), nullptr);
}

}  // namespace
}  // namespace lockstep::detail
