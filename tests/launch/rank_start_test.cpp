// What a rank finds when it starts, and what a launch leaves behind.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <sstream>
#include <thread>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/launch/join.h>

#include "cluster/scoped_variables.h"
#include "launch/launcher_process.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::launch_ranks;
using testing::LauncherProcess;
using testing::ScopedVariables;
using testing::this_rank;
using ::testing::UnorderedElementsAre;

/// Launches ranks that write what `told` says to rank_N; returns their texts by rank.
std::vector<std::string> ask_ranks(LaunchOptions asked, const std::function<std::string()>& told) {
  LauncherProcess launcher([&](LaunchOptions options) {
    asked.run_dir = options.run_dir;
    return launch_forked(asked, [&] {
      testing::write_file(asked.run_dir / ("rank_" + std::to_string(this_rank())), told());
      return 0;
    });
  });
  const auto result = launcher.wait();
  EXPECT_EQ(result.status, 0) << result.errors;
  std::vector<std::string> texts;
  for (int local = 0; local < asked.nprocs; ++local) {
    const int rank = asked.node_rank * asked.nprocs + local;
    texts.push_back(test::content(launcher.run_dir() / ("rank_" + std::to_string(rank))));
  }
  return texts;
}

std::string variables() {
  std::string text;
  for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK",
                           "GROUP_WORLD_SIZE", "MASTER_ADDR", "LOCKSTEP_LAUNCHED", "LOCKSTEP_STATUS_FD"}) {
    text += std::string(name) + "=" + env::get(name).value_or("-") + " ";
  }
  return text;
}

TEST(RankEnvironment, IsTorchruns) {
  const ScopedVariables scope({});
  EXPECT_THAT(
      ask_ranks({.nprocs = 2}, variables),
      ::testing::ElementsAre("RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 NODE_RANK=0 GROUP_RANK=0 "
                             "GROUP_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 LOCKSTEP_LAUNCHED=fork "
                             "LOCKSTEP_STATUS_FD=- ",
                             "RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 NODE_RANK=0 GROUP_RANK=0 "
                             "GROUP_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 LOCKSTEP_LAUNCHED=fork "
                             "LOCKSTEP_STATUS_FD=- "));
}

TEST(RankEnvironment, OfALaterNodeCountsOnAndHasNoSocket) {
  const auto texts = ask_ranks(
      {.nprocs = 2, .node_rank = 1, .num_nodes = 3, .main_address = "head", .main_port = 29511}, [] {
        return variables() + env::get("MASTER_PORT").value_or("") +
               env::get("LOCKSTEP_LISTEN_FD").value_or(" none");
      });
  EXPECT_THAT(texts[1], AllOf(HasSubstr("RANK=3 LOCAL_RANK=1 WORLD_SIZE=6"), HasSubstr("NODE_RANK=1"),
                              HasSubstr("GROUP_WORLD_SIZE=3 MASTER_ADDR=head"), HasSubstr("29511 none")));
}

TEST(RankEnvironment, SharesTheProcessorsUnlessTold) {
  const auto threads = [] { return env::get("OMP_NUM_THREADS").value_or("-"); };
  cpu_set_t mask;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(mask), &mask), 0);
  const ScopedVariables scope({});
  EXPECT_EQ(ask_ranks({.nprocs = 1}, threads)[0], std::to_string(CPU_COUNT(&mask)));
  EXPECT_EQ(ask_ranks({.nprocs = CPU_COUNT(&mask) + 1}, threads)[0], "1");
  const ScopedVariables told({{"OMP_NUM_THREADS", "7"}, {"NODE_RANK", "0"}});
  EXPECT_EQ(ask_ranks({.nprocs = 2}, threads)[1], "7");
}

TEST(RankEnvironment, SaysHowManyThreadsTensorsShouldUse) {
  const auto threads = [] { return std::to_string(threads_per_rank()); };
  const ScopedVariables scope({});
  const int processors = threads_per_rank();
  EXPECT_EQ(ask_ranks({.nprocs = 1}, threads)[0], std::to_string(processors));
  EXPECT_EQ(ask_ranks({.nprocs = processors + 1}, threads)[0], "1");
  const ScopedVariables told({{"OMP_NUM_THREADS", "7,2"}, {"NODE_RANK", "0"}});
  EXPECT_EQ(ask_ranks({.nprocs = 2}, threads)[1], "7");
  const ScopedVariables malformed({{"OMP_NUM_THREADS", "many"}, {"LOCAL_WORLD_SIZE", "1000000"}});
  EXPECT_EQ(threads_per_rank(), 1);
}

TEST(RankProcess, IsANamedChildOfTheLauncherThatKnowsItWasLaunched) {
  const auto texts = ask_ranks({.nprocs = 2}, [] {
    return test::content("/proc/self/comm") + (started_by_launcher() ? "launched" : "alone") +
           std::to_string(local_world_size().value_or(0)) + " " +
           (test::content("/proc/" + std::to_string(::getppid()) + "/comm").substr(0, 5));
  });
  EXPECT_THAT(texts, ::testing::ElementsAre("rank-0\nlaunched2 core_", "rank-1\nlaunched2 core_"));
}

std::string signal_masks() {
  std::istringstream lines(test::content("/proc/self/status"));
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("SigBlk") || line.starts_with("SigIgn") || line.starts_with("SigCgt")) found += line;
  }
  return found;
}

TEST(RankProcess, HasTheSignalsAsTheyWereBeforeTheLaunch) {
  const auto before = signal_masks();
  for (const auto& during : ask_ranks({.nprocs = 2}, signal_masks)) EXPECT_EQ(during, before);
  EXPECT_THAT(before, HasSubstr("SigBlk:\t0000000000000000"));
}

std::set<std::string> open_files() {
  std::set<std::string> targets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry, gone).string();
    if (!target.starts_with("/proc/")) targets.insert(target);  // which is this iteration itself
  }
  return targets;
}

std::string new_files(const std::set<std::string>& before) {
  std::string text;
  for (const auto& target : open_files()) {
    if (!before.contains(target)) text += target.substr(0, target.find(':')) + " ";
  }
  return text;
}

TEST(RankProcess, InheritsNothingOfTheLaunchersButRankZerosSocket) {
  LauncherProcess launcher([](LaunchOptions options) {
    options.nprocs = 3;
    const auto before = open_files();
    return launch_forked(options, [&] {
      testing::write_file(options.run_dir / ("files_" + std::to_string(this_rank())), new_files(before));
      return 0;
    });
  });
  EXPECT_EQ(launcher.wait().status, 0);
  EXPECT_EQ(test::content(launcher.run_dir() / "files_0"), "socket ");
  EXPECT_EQ(test::content(launcher.run_dir() / "files_1"), "");
  EXPECT_EQ(test::content(launcher.run_dir() / "files_2"), "");
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

TEST(ListenSocket, LetsOtherRanksConnectBeforeRankZeroIsThere) {
  const auto result = launch_ranks(2, [](int rank) {
    const auto address = loopback(static_cast<int>(env::require_int("MASTER_PORT")));
    char byte = 0;
    if (rank == 1) {
      if (env::get("LOCKSTEP_LISTEN_FD")) throw std::runtime_error("rank 1 has the socket, too");
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
          ::write(fd, "x", 1) != 1) {
        throw std::runtime_error("rank 1 cannot connect");
      }
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const int fd = ::accept(static_cast<int>(env::require_int("LOCKSTEP_LISTEN_FD")), nullptr, nullptr);
    if (fd < 0 || ::read(fd, &byte, 1) != 1 || byte != 'x') throw std::runtime_error("rank 0 got nothing");
  });
  EXPECT_EQ(result.status, 0) << result.errors;
}

int count_sockets(pid_t pid) {
  int sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    std::error_code gone;
    sockets += std::filesystem::read_symlink(entry, gone).string().starts_with("socket:") ? 1 : 0;
  }
  return sockets;
}

TEST(ListenSocket, IsLeftToRankZeroSoThatItClosesWithIt) {
  LauncherProcess launcher([](LaunchOptions options) {
    return launch_forked(options, [&]() -> int {
      testing::ready(options);
      testing::sleep_for_ever();
    });
  });
  const auto pids = launcher.wait_for_ranks(1);
  EXPECT_EQ(count_sockets(pids.at(0)), count_sockets(::getpid()) + 1);
  EXPECT_EQ(count_sockets(launcher.pid()), count_sockets(::getpid()));
}

std::string launch_error(LaunchOptions options) {
  try {
    launch_forked(options, [] { return 0; });
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ListenSocket, NamesAPortThatIsTaken) {
  const ScopedVariables scope({});
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  auto address = loopback(0);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int port = ntohs(address.sin_port);
  EXPECT_THAT(launch_error({.main_port = port}),
              AllOf(HasSubstr("127.0.0.1 port " + std::to_string(port)), HasSubstr("in use")));
  ::close(fd);
}

TEST(LaunchOptions, AreCheckedByName) {
  const ScopedVariables scope({});
  EXPECT_THAT(launch_error({.nprocs = 0}), AllOf(HasSubstr("nprocs"), HasSubstr("got 0")));
  EXPECT_THAT(launch_error({.num_nodes = 0}), HasSubstr("num_nodes"));
  EXPECT_THAT(launch_error({.node_rank = 2, .num_nodes = 2, .main_port = 1}),
              HasSubstr("node_rank; expected 0..1"));
  EXPECT_THAT(launch_error({.num_nodes = 2}), HasSubstr("main_port; expected 1..65535"));
  EXPECT_THAT(launch_error({.main_address = "no such host"}), HasSubstr("no such host"));
  EXPECT_THAT(launch_error({.run_dir = "/proc/none/such"}), HasSubstr("run_dir"));
}

TEST(Launch, IsRefusedInARank) {
  const ScopedVariables scope({{"LOCAL_RANK", "1"}, {"NODE_RANK", "0"}});
  EXPECT_THAT(launch_error({}), HasSubstr("LOCAL_RANK=1"));
}

TEST(Launch, ByForkIsRefusedOnceThereAreThreads) {
  const ScopedVariables scope({});
  EXPECT_TRUE(can_fork());
  std::jthread other([](const std::stop_token& stop) {
    while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_FALSE(can_fork());
  EXPECT_THAT(launch_error({}), HasSubstr("launch_reexec"));
}

TEST(Launch, LeavesNoDescriptorsAndNoZombies) {
  LauncherProcess launcher([](LaunchOptions options) {
    const auto count = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); };
    const auto before = count();
    options.nprocs = 3;
    const int first = launch_forked(options, [] { return 0; });
    const int second = launch_forked(options, [] { return this_rank() == 2 ? 3 : 0; });
    const bool no_children = ::waitpid(-1, nullptr, 0) == -1 && errno == ECHILD;
    return first == 0 && second == 3 && count() == before && no_children ? 0 : 1;
  });
  EXPECT_EQ(launcher.wait().status, 0);
}

TEST(Launch, WritesWhichProcessIsWhichRank) {
  const auto result = launch_ranks(3, [](int) {});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.errors, "");
  ASSERT_EQ(result.pids.size(), 3u);
  EXPECT_THAT((std::set<pid_t>{result.pids.at(0), result.pids.at(1), result.pids.at(2)}),
              ::testing::SizeIs(3));
}

}  // namespace
}  // namespace lockstep
