// Who watches the collectives of a process.
#include <gtest/gtest.h>
#include <lockstep/comm/collective_observer.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include <map>
#include <mutex>
#include <string>

namespace lockstep {
namespace {

class Recorder final : public CollectiveObserver {
 public:
  void on_collective(const CollectiveEvent& event) noexcept override {
    const std::lock_guard lock(mutex_);
    ++counts_[collective_names()[event.kind]];
    is_ordered_ = is_ordered_ && event.begin <= event.end;
  }
  int count(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return counts_[name];
  }
  bool is_ordered() const { return is_ordered_; }

 private:
  std::mutex mutex_;
  std::map<std::string, int> counts_;
  bool is_ordered_ = true;
};

TEST(CollectiveObserver, SeesThoseOfAllGroupsWhileItsScopeLives) {
  Recorder recorder, later;
  // Both ranks are threads of this process: each collective is seen twice.
  testing::run_ranks(2, [&](const Communicator& comm) {
    const auto ones = torch::ones({3});
    comm.all_reduce(ones);
    comm.barrier();
    std::optional<ObservedCollectives> scope;
    if (comm.rank() == 0) scope.emplace(recorder);
    comm.barrier();
    comm.all_reduce(ones);
    comm.all_reduce_async(ones).wait();
    const auto group = comm.split(0).value();
    group.all_reduce(torch::ones({100'000}));
    comm.barrier();
    if (comm.rank() == 0) scope.reset();
    comm.barrier();
    comm.all_reduce(ones);
  });
  EXPECT_EQ(recorder.count("all_reduce"), 2 * 3);
  EXPECT_GE(recorder.count("barrier"), 2);
  EXPECT_TRUE(recorder.is_ordered());
}

TEST(CollectiveObserver, OfSeveralTheLatestSees) {
  Recorder first, second;
  const ObservedCollectives outer(first);
  {
    const ObservedCollectives inner(second);
    testing::run_ranks(2, [](const Communicator& comm) { comm.barrier(); });
    EXPECT_EQ(second.count("barrier"), 2);
    EXPECT_EQ(first.count("barrier"), 0);
  }
}

}  // namespace
}  // namespace lockstep
