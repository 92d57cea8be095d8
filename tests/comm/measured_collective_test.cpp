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
    bytes_[collective_names()[event.kind]] += event.bytes;
    is_ordered_ = is_ordered_ && event.begin <= event.end;
  }
  int count(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return counts_[name];
  }
  std::int64_t bytes(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return bytes_[name];
  }
  bool is_ordered() const { return is_ordered_; }

 private:
  std::mutex mutex_;
  std::map<std::string, int> counts_;
  std::map<std::string, std::int64_t> bytes_;
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

TEST(CollectiveObserver, SeveralSeeTheSame) {
  Recorder first, second;
  const ObservedCollectives outer(first);
  {
    const ObservedCollectives inner(second);
    testing::run_ranks(2, [](const Communicator& comm) { comm.barrier(); });
  }
  testing::run_ranks(2, [](const Communicator& comm) { comm.barrier(); });
  EXPECT_EQ(second.count("barrier"), 2);
  EXPECT_EQ(first.count("barrier"), 4);
}

TEST(CollectiveObserver, IsToldHowMuchARankGives) {
  Recorder recorder;
  const ObservedCollectives scope(recorder);
  testing::run_ranks(2, [](const Communicator& comm) {
    comm.all_reduce(torch::ones({5}));
    std::vector<at::Tensor> rows{torch::empty({3}), torch::empty({3})};
    comm.all_gather(rows, torch::ones({3}));
  });
  EXPECT_EQ(recorder.bytes("all_reduce"), 2 * 5 * 4);
  EXPECT_EQ(recorder.bytes("all_gather"), 2 * 3 * 4);
}

}  // namespace
}  // namespace lockstep
