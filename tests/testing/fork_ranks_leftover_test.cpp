// Of forked ranks nothing is left, neither after a run nor when the test process dies.
#include <lockstep/testing/fork_ranks.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cctype>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

namespace lockstep {
namespace {

using testing::fork_ranks;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

// With the argument "stay", rank 1 does not come to the barrier.
LOCKSTEP_RANK_BODY(meet)(Communicator comm, std::string argument)->std::string {
  while (comm.rank() == 1 && argument == "stay") std::this_thread::sleep_for(1s);
  comm.barrier();
  comm.barrier();
  return "met";
}

struct ProcessState {
  char state = 'X';  // X: gone, Z: dead, but nobody has asked for its exit code
  pid_t parent = 0;
};

ProcessState state_of(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  ProcessState result;
  if (std::getline(stat, line)) {
    std::sscanf(line.c_str() + line.rfind(')') + 1, " %c %d", &result.state, &result.parent);
  }
  return result;
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto name = entry.path().filename().string();
    if (!std::isdigit(name[0])) continue;
    if (const auto pid = std::stoi(name); state_of(pid).parent == parent) children.push_back(pid);
  }
  return children;
}

std::ptrdiff_t descriptors_of(pid_t pid) {
  const std::filesystem::directory_iterator descriptors("/proc/" + std::to_string(pid) + "/fd");
  return std::distance(begin(descriptors), end(descriptors));
}

// Among them runs that fail in each way.
TEST(ForkedRanks, LeaveNothingBehind) {
  const auto own_children = children_of(::getpid());
  ASSERT_EQ(own_children.size(), 1u) << "the zygote alone is expected";
  const auto zygote = own_children[0];
  const auto own_descriptors = descriptors_of(::getpid()), its_descriptors = descriptors_of(zygote);
  for (int run = 0; run < 47; ++run) {
    EXPECT_EQ(fork_ranks(2, "meet")[1].result, "met");
  }
  // In the second barrier: before the first one is over the other rank may not have joined.
  fork_ranks(2, "meet", "", {.fault = {FaultKind::kKill, 1, 2}});
  EXPECT_THROW(fork_ranks(2, "meet", "stay", {.deadline = 300ms}), Error);
  EXPECT_THROW(fork_ranks(2, "meet", "", {.fault = {FaultKind::kExit, 1, 0}}), Error);
  EXPECT_THAT(children_of(zygote), IsEmpty());
  EXPECT_EQ(children_of(::getpid()), own_children);
  EXPECT_EQ(descriptors_of(zygote), its_descriptors);
  EXPECT_EQ(descriptors_of(::getpid()), own_descriptors);
}

LOCKSTEP_RANK_BODY(say_who_and_stay)(Communicator comm, std::string argument)->std::string {
  const auto path = argument + std::to_string(comm.rank());
  std::ofstream(path + ".new") << ::getpid() << ' ' << ::getppid();
  std::filesystem::rename(path + ".new", path);
  comm.barrier();
  while (true) std::this_thread::sleep_for(1s);
}

// A test program of its own is killed while its ranks run.
TEST(ForkedRanksDeathTest, EndWithTheTestProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // That program runs this test, too, up to the statement.
  const auto own_prefix = (std::filesystem::temp_directory_path() / "lockstep-ranks-").string() +
                          std::to_string(::getpid()) + "-";
  const auto prefix = env::get("LOCKSTEP_TEST_PREFIX").value_or(own_prefix);
  env::set("LOCKSTEP_TEST_PREFIX", prefix);
  EXPECT_EXIT(
      {
        std::thread([prefix] { fork_ranks(2, "say_who_and_stay", prefix); }).detach();
        for (const auto* rank : {"0", "1"}) {
          const auto is_there = [&] { return std::filesystem::exists(prefix + rank); };
          for (int wait = 0; wait < 6000 && !is_there(); ++wait) std::this_thread::sleep_for(10ms);
        }
        ::raise(SIGKILL);
      },
      ::testing::KilledBySignal(SIGKILL), "");
  env::unset("LOCKSTEP_TEST_PREFIX");
  for (const auto* rank : {"0", "1"}) {
    std::ifstream file(prefix + rank);
    pid_t pid = 0, zygote = 0;
    ASSERT_TRUE(file >> pid >> zygote);
    for (const auto process : {pid, zygote}) {
      const auto is_running = [process] {
        return std::string("XZ").find(state_of(process).state) == std::string::npos;
      };
      for (int wait = 0; wait < 500 && is_running(); ++wait) std::this_thread::sleep_for(20ms);
      EXPECT_FALSE(is_running()) << "process " << process << " is still there";
    }
    std::filesystem::remove(prefix + rank);
  }
}

}  // namespace
}  // namespace lockstep
