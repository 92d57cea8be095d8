// init_process_group(): where ranks meet, what is missing or malformed, and the end of the scope.
#include <lockstep/comm/init.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>
#include <lockstep/comm/store.h>

#include "cluster/scoped_variables.h"
#include "comm/join/join_handshake.h"
#include "comm/join/process_group.h"
#include "comm/listener.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ScopedVariables;
using ::testing::ThrowsMessage;

constexpr auto kLongTimeout = 60s;    // of groups whose failures must not wait for it
constexpr auto kGroupDeadline = 20s;  // on a busy machine

std::string any_port() { return std::to_string(test::free_port()); }

/// Both ranks in threads of their own; throws what one of them threw.
void on_two_ranks(const std::function<void(int rank)>& body) {
  auto other = std::async(std::launch::async, body, 1);
  body(0);
  other.get();
}

void join_and_sum(const ProcessGroupOptions& options) {
  const auto group = init_process_group(options);
  EXPECT_EQ(group.size(), 2);
  const auto tensor = at::ones({3});
  group.all_reduce(tensor);
  EXPECT_EQ(tensor[2].item<int>(), 2);
}

void expect_refusal(const ProcessGroupOptions& options, const std::string& first, const std::string& second) {
  EXPECT_THAT([&] { init_process_group(options); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr(first), HasSubstr(second))));
}

TEST(InitProcessGroup, MeetsWhereTheEnvironmentSays) {
  const ScopedVariables variables(
      {{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", any_port()}, {"WORLD_SIZE", "2"}});
  on_two_ranks([](int rank) { join_and_sum({.rank = rank, .timeout = kLongTimeout}); });
}

TEST(InitProcessGroup, MeetsAtAnAddress) {
  const ScopedVariables none({});
  const auto place = "tcp://127.0.0.1:" + any_port();
  on_two_ranks([&](int rank) {
    join_and_sum({.rank = rank, .world_size = 2, .init_method = place, .timeout = kLongTimeout});
  });
  on_two_ranks([&](int rank) {
    const auto here = place + "?rank=" + std::to_string(rank) + "&world_size=2";
    join_and_sum({.init_method = here, .timeout = kLongTimeout});
  });
}

TEST(InitProcessGroup, MeetsInAFileThatIsRemovedAtTheEnd) {
  const test::TemporaryFolder folder;
  for (int again = 0; again < 2; ++again) {
    on_two_ranks([&](int rank) {
      join_and_sum({.rank = rank,
                    .world_size = 2,
                    .init_method = "file://" + (folder / "meeting").string(),
                    .timeout = kLongTimeout});
    });
    EXPECT_EQ(folder.entries(), 0);
  }
}

// Stores of `ranks` ranks in one file, each told who has met there.
std::vector<std::optional<Store>> stores_in(const std::filesystem::path& file,
                                            const detail::JoinedRanks& roll, const std::vector<int>& ranks) {
  std::vector<std::optional<Store>> stores;
  for (const int rank : ranks) {
    stores.emplace_back(make_file_store(file, static_cast<int>(roll.size())));
    stores.back()->set("rank " + std::to_string(rank), "is there");
    if (!roll.front().host.empty()) detail::set_users(*stores.back(), rank, roll);
  }
  return stores;
}

// As where /proc is not mounted.
TEST(JoinEntry, KeepsItsSettingsWhereThePidSpaceIsNotKnown) {
  const detail::JoinEntry entry{.host = detail::own_entry().host,
                                .pid = 999'999'999,
                                .settings = {{"backend", "sockets"}, {"protocol", "5"}}};
  const auto read = detail::join_entry_from_text(detail::to_text(entry));
  EXPECT_EQ(read.settings, entry.settings);
  EXPECT_EQ(read.pid_space, "");
  EXPECT_FALSE(read.is_gone());  // its number may be of another PID namespace
}

// c10d writes each piece by itself, and holds a lock meanwhile.
TEST(FileStore, WaitsForARankThatMakesIt) {
  const test::TemporaryFolder folder;
  const auto file = folder / "meeting";
  const UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_EQ(::flock(fd.get(), LOCK_EX), 0);
  ASSERT_EQ(::write(fd.get(), "\x09\0\0\0", 4), 4);
  auto other = std::async(std::launch::async, [&] { return make_file_store(file, 2).add("there", 1); });
  EXPECT_EQ(other.wait_for(100ms), std::future_status::timeout);
  ASSERT_EQ(::write(fd.get(),
                    "refcount/\x01\0\0\0"
                    "1",
                    14),
            14);
  ASSERT_EQ(::flock(fd.get(), LOCK_UN), 0);
  EXPECT_EQ(other.get(), 1);
}

TEST(FileStore, IsRemovedWhenAllLeaveAtOneMoment) {
  const test::TemporaryFolder folder;
  const detail::JoinedRanks unknown(4), known(4, detail::own_entry());
  for (int again = 0; again < 100; ++again) {
    auto stores = stores_in(folder / "meeting", again % 2 == 0 ? unknown : known, {0, 1, 2, 3});
    std::atomic<int> here = 0;
    std::vector<std::future<void>> leaving;
    for (auto& store : stores) {
      leaving.push_back(std::async(std::launch::async, [&] {
        ++here;
        while (here < 4) std::this_thread::yield();
        store.reset();
      }));
    }
    for (auto& left : leaving) left.get();
    ASSERT_EQ(folder.entries(), 0) << again;
  }
}

TEST(FileStore, IsRemovedByTheLastWhenARankHasDied) {
  const test::TemporaryFolder folder;
  detail::JoinedRanks roll(3, detail::own_entry());
  roll[1].pid = 999'999'999;
  for (const auto& order : {std::vector{0, 2}, std::vector{2, 0}}) {
    auto stores = stores_in(folder / "meeting", roll, order);
    stores[0].reset();
    EXPECT_EQ(folder.entries(), 1);
    stores[1].reset();
    EXPECT_EQ(folder.entries(), 0);
  }
}

TEST(FileStore, StaysWhereRanksMayStillCome) {
  const test::TemporaryFolder folder;
  (void)stores_in(folder / "meeting", detail::JoinedRanks(3), {0, 1});
  EXPECT_EQ(folder.entries(), 1);
}

TEST(InitProcessGroup, RefusesAFileOfAnEarlierRunOnEveryRank) {
  const test::TemporaryFolder folder;
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  {
    auto store = make_file_store(folder / "meeting", 2);
    store.add("roll_call/1/count", 1);
    store.set("roll_call/1", std::string(host.data()) + "\n999999999 " +
                                 std::filesystem::read_symlink("/proc/self/ns/pid").string() + "\n");
  }
  const auto start = steady_clock::now();
  on_two_ranks([&](int rank) {
    const ProcessGroupOptions options{.rank = rank,
                                      .world_size = 2,
                                      .init_method = "file://" + (folder / "meeting").string(),
                                      .timeout = kLongTimeout};
    EXPECT_THAT([&] { init_process_group(options); },
                ThrowsMessage<CommError>(AllOf(HasSubstr("meeting is left over from an earlier run"),
                                               HasSubstr("999999999"), HasSubstr("remove the file"))));
  });
  EXPECT_LT(steady_clock::now() - start, kGroupDeadline);
}

TEST(InitProcessGroup, RefusesFilesThatAreNoStores) {
  const test::TemporaryFolder folder;
  const auto letter = folder.file("letter.txt", "Dear Sir or Madam, will you read my book?");
  const auto at = [](const std::string& path) {
    return ProcessGroupOptions{.rank = 0, .world_size = 2, .init_method = "file://" + path};
  };
  expect_refusal(at(letter.string()), "letter.txt", "other content");
  EXPECT_EQ(test::content(letter), "Dear Sir or Madam, will you read my book?");
  expect_refusal(at((folder / "no/such/folder").string()), "no/such/folder", "No such file or directory");
}

TEST(InitProcessGroup, NamesEveryVariableThatIsMissingOrMalformed) {
  const testing::Variables complete{
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : complete) {
    auto incomplete = complete;
    incomplete.erase(name);
    const ScopedVariables variables(incomplete);
    expect_refusal({}, "environment variable " + name, "unset");
  }
  for (const auto& [name, value] :
       testing::Variables{{"RANK", "one"}, {"RANK", "-1"}, {"WORLD_SIZE", "0"}, {"MASTER_PORT", "70000"}}) {
    auto malformed = complete;
    malformed[name] = value;
    const ScopedVariables variables(malformed);
    expect_refusal({}, "environment variable " + name, value);
  }
}

TEST(InitProcessGroup, NamesWhatIsMissingWithoutTheEnvironment) {
  const ScopedVariables variables({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  expect_refusal({.world_size = 2, .init_method = "tcp://localhost:29500"}, "rank is missing", "env://");
  expect_refusal({.rank = 0, .init_method = "tcp://localhost:29500"}, "world_size is missing", "env://");
  expect_refusal({.rank = 0, .init_method = "tcp://localhost:29500?rank=1&world_size=2"},
                 "rank is given twice", "option 0 and 1");
  expect_refusal({.init_method = "tcp://localhost:29500?rank=first&world_size=2"}, "parameter rank",
                 "\"first\"");
  expect_refusal({.rank = 2, .world_size = 2, .init_method = "tcp://localhost:1"}, "rank is out of range",
                 "0 to 1");
  expect_refusal({.backend = "nccl", .rank = 0, .world_size = 2, .init_method = "tcp://localhost:1"},
                 "backend is not available", "nccl");
}

TEST(InitMethod, SaysWhatIsWrongWithAnAddress) {
  const auto expect = [](const std::string& text, const std::string& problem) {
    EXPECT_THAT([&] { detail::parse_init_method(text); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr(problem), HasSubstr(text))));
  };
  for (const auto* text : {"", "localhost:29500", "mpi://", "http://localhost:29500"})
    expect(text, "scheme is not known");
  for (const auto* text : {"tcp://localhost", "tcp://[::1]"}) expect(text, "port number is missing");
  for (const auto* text : {"tcp://localhost:", "tcp://localhost:0", "tcp://localhost:x"})
    expect(text, "1 to 65535");
  expect("tcp://:29500", "host is missing");
  for (const auto* text : {"file://", "file:///", "file://relative"}) expect(text, "path is missing");
  expect("env://localhost", "takes no address");
  expect("tcp://localhost:29500?ranks=1", "parameter ranks");
}

TEST(InitMethod, ReadsAnIpv6Address) {
  const auto method = detail::parse_init_method("tcp://[fe80::1]:29500?rank=3");
  EXPECT_EQ(method.host, "fe80::1");
  EXPECT_EQ(method.port, 29500);
  EXPECT_EQ(method.parameters.at("rank"), "3");
}

// It could be waiting for this rank in a collective, where the end of the scope would wait for it.
TEST(ProcessGroup, IsLeftAtOnceByAnException) {
  const auto place = "tcp://127.0.0.1:" + any_port();
  const auto start = steady_clock::now();
  on_two_ranks([&](int rank) {
    const auto work = [&] {
      const auto group =
          init_process_group({.rank = rank, .world_size = 2, .init_method = place, .timeout = kLongTimeout});
      if (rank == 1) throw std::runtime_error("a bug");
      group.all_reduce(at::ones({3}));
    };
    if (rank == 1) {
      EXPECT_THROW(work(), std::runtime_error);
    } else {
      EXPECT_THROW(work(), PeerLost);
    }
  });
  EXPECT_LT(steady_clock::now() - start, kGroupDeadline);
}

TEST(ProcessGroup, MovesAndClosesOnce) {
  const auto place = "tcp://127.0.0.1:" + any_port();
  on_two_ranks([&](int rank) {
    const ProcessGroupOptions options{
        .rank = rank, .world_size = 2, .init_method = place, .timeout = kLongTimeout};
    auto first = init_process_group(options);
    auto second = std::move(first);
    const Communicator copy = second;
    second.barrier();
    second = init_process_group(options);  // the first group is closed here
    EXPECT_THROW(copy.barrier(), CommError);
    second.barrier();
  });
}

}  // namespace
}  // namespace lockstep
