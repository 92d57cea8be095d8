// How ranks find each other's connections, and who is turned away.
#include "rendezvous/mesh_sockets.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include <lockstep/base/error.h>

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

Hello hello_of(std::uint32_t rank, std::uint64_t token = 7) {
  return {.rank = rank, .world_size = 2, .token = token};
}

Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

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

TEST(MeshSockets, AnInterfaceThatIsNotThereIsNamed) {
  EXPECT_THROW(MeshListener("127.0.0.1", "nosuch0"), CommError);
  EXPECT_EQ(MeshListener("127.0.0.1", "lo").endpoint().host, "127.0.0.1");
}

}  // namespace
}  // namespace lockstep::rendezvous
