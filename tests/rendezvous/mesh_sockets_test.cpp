// How ranks find each other's connections, and who is turned away.
#include "rendezvous/mesh_sockets.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include <lockstep/base/error.h>

#include "rendezvous/mesh_threads.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using lockstep::testing::in;
using ::testing::HasSubstr;

Hello hello_of(std::uint32_t rank, std::uint64_t token = 7) {
  return {.rank = rank, .world_size = 2, .token = token};
}

UniqueFd call_raw(const Endpoint& endpoint) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(endpoint.port));
  ::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

TEST(MeshSockets, StrangersAreTurnedAwayAndTheRankStillGetsIn) {
  const MeshListener zero("127.0.0.1"), one("127.0.0.1");
  const std::vector<Endpoint> endpoints{zero.endpoint(), one.endpoint()};
  const auto silent = call_raw(zero.endpoint());
  const auto noisy = call_raw(zero.endpoint());
  const auto stranger = hello_of(1, 8);  // of another job
  EXPECT_EQ(::send(noisy.get(), &stranger, sizeof stranger, 0), static_cast<ssize_t>(sizeof stranger));
  std::vector<UniqueFd> of_one;
  std::jthread other([&] { of_one = connect_mesh(one, hello_of(1), endpoints, in(20s)); });
  const auto of_zero = connect_mesh(zero, hello_of(0), endpoints, in(20s));
  other.join();
  EXPECT_TRUE(of_zero[1]);
  EXPECT_TRUE(of_one[0]);
  char byte = 0;
  EXPECT_EQ(::recv(noisy.get(), &byte, 1, 0), 0);
}

TEST(MeshSockets, ARankThatNeverComesIsNamed) {
  const MeshListener zero("127.0.0.1");
  const std::vector<Endpoint> endpoints{zero.endpoint(), {"127.0.0.1", 1}};
  try {
    (void)connect_mesh(zero, hello_of(0), endpoints, in(50ms));
    FAIL();
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(), HasSubstr("no connection with rank 1"));
  }
}

// Each of them used to be waited for by itself.
TEST(MeshSockets, CallersThatSayNothingHoldUpNobody) {
  const MeshListener zero("127.0.0.1"), one("127.0.0.1");
  const std::vector<Endpoint> endpoints{zero.endpoint(), one.endpoint()};
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(call_raw(zero.endpoint()));
  const auto begin = std::chrono::steady_clock::now();
  std::vector<UniqueFd> of_one;
  std::jthread other([&] { of_one = connect_mesh(one, hello_of(1), endpoints, in(60s)); });
  const auto of_zero = connect_mesh(zero, hello_of(0), endpoints, in(60s));
  other.join();
  EXPECT_TRUE(of_zero[1]);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
}

// While it lives, this process can open no more files.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const UniqueFd next(::dup(0));
    const rlimit none{.rlim_cur = static_cast<rlim_t>(next.get()), .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit before_{};
};

TEST(MeshSockets, ARankThatCanAcceptNobodySaysWhy) {
  const MeshListener zero("127.0.0.1");
  const std::vector<Endpoint> endpoints{zero.endpoint(), {"127.0.0.1", 1}};
  const auto caller = call_raw(zero.endpoint());
  const NoMoreFiles limit;
  try {
    (void)connect_mesh(zero, hello_of(0), endpoints, in(60s));
    FAIL();
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot accept"));
    EXPECT_THAT(error.what(), HasSubstr("ulimit -n"));
  }
}

// No test can cut a cable; what the kernel is told decides whether it notices.
TEST(MeshSockets, AMachineThatVanishesWhileDataAreUnderWayIsNoticed) {
  const MeshListener zero("127.0.0.1"), one("127.0.0.1");
  const std::vector<Endpoint> endpoints{zero.endpoint(), one.endpoint()};
  std::vector<UniqueFd> of_one;
  std::jthread other([&] { of_one = connect_mesh(one, hello_of(1), endpoints, in(60s)); });
  const auto of_zero = connect_mesh(zero, hello_of(0), endpoints, in(60s));
  other.join();
  for (const int fd : {of_zero[1].get(), of_one[0].get()}) {
    unsigned timeout_ms = 0;
    socklen_t length = sizeof timeout_ms;
    ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, &length), 0);
    EXPECT_EQ(timeout_ms, 11'000);
  }
}

TEST(MeshSockets, AnInterfaceThatIsNotThereIsNamed) {
  EXPECT_THROW(MeshListener("127.0.0.1", "nosuch0"), CommError);
  EXPECT_EQ(MeshListener("127.0.0.1", "lo").endpoint().host, "127.0.0.1");
}

}  // namespace
}  // namespace lockstep::rendezvous
