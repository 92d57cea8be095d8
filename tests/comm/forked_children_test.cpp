// Children that a rank forks: they keep nothing open, and do not speak for their parent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include <lockstep/base/error.h>
#include <lockstep/testing/fork_ranks.h>

#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using ::testing::AllOf;
using testing::fork_ranks;
using ::testing::HasSubstr;

constexpr auto kPatience = 30s;

/// Whether it came to pass in time.
bool await(const std::function<bool()>& condition) {
  for (const auto deadline = steady_clock::now() + kPatience; steady_clock::now() < deadline;) {
    if (condition()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

// The child lives until `file` tells it to end.
LOCKSTEP_RANK_BODY(parent_of_a_child_dies)(Communicator comm, std::string file)->std::string {
  comm.barrier();
  const auto is_over = [&] { return std::filesystem::exists(file); };
  if (comm.rank() == 1) {
    if (::fork() == 0) ::_exit(await(is_over) ? 0 : 1);
    std::raise(SIGKILL);
  }
  const auto start = steady_clock::now();
  try {
    comm.all_reduce(at::ones({100'000}));
  } catch (const PeerLost& error) {
    std::ofstream(file) << "over";
    return steady_clock::now() - start < kPatience / 2 ? error.what() : "too late";
  }
  return "nothing was lost";
}

TEST(ForkedChild, DoesNotHideTheDeathOfItsParent) {
  const test::TemporaryFolder folder;
  const auto ranks = fork_ranks(2, "parent_of_a_child_dies", (folder.path() / "over").string());
  EXPECT_THAT(ranks[0].result, HasSubstr("rank 1 is gone"));
}

std::string use_in_child(std::optional<Communicator>& comm, const Work& work) {
  try {
    comm->all_reduce(at::ones({4}));
    return "the child took part";
  } catch (const CommError& error) {
    if (std::string(error.what()).find("is a fork of a rank") == std::string::npos) return error.what();
  }
  try {
    work.wait();
    return "the child waited";
  } catch (const CommError&) {
  }
  comm->close();
  comm.reset();
  return "";
}

int status_of(pid_t child) {
  int status = -1;
  const bool has_ended = await([&] { return ::waitpid(child, &status, WNOHANG) == child; });
  if (has_ended) return status;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return -1;
}

LOCKSTEP_RANK_BODY(child_leaves)(Communicator given, std::string)->std::string {
  std::optional<Communicator> comm(*given.new_group({0, 1}));
  comm->barrier();
  const auto tensor = at::ones({100'000});
  const auto work = comm->all_reduce_async(tensor);
  const auto message = given.rank() == 0 ? comm->recv_async(at::ones({3}), 1) : Work();  // under way
  if (comm->rank() == 0) {
    const auto child = ::fork();
    if (child == 0) ::_exit(use_in_child(comm, message).empty() ? 0 : 3);
    const int status = status_of(child);
    if (status != 0) return "the child ended with " + std::to_string(status);
  }
  work.wait();
  for (int i = 0; i < 3; ++i) comm->all_reduce(at::ones({100'000}));
  if (comm->rank() == 1) comm->send(at::ones({3}), 0);
  message.wait();
  comm->close();
  given.close();
  return "the parent went on";
}

TEST(ForkedChild, DoesNotSpeakForItsParent) {
  for (const auto& rank : fork_ranks(2, "child_leaves", ""))
    EXPECT_EQ(rank.result, "the parent went on") << rank.error;
}

}  // namespace
}  // namespace lockstep
