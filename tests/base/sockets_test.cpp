// Connections with hosts of several addresses, some of which are silent.
#include "base/sockets.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <set>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

UniqueFd listener(int backlog) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(fd.get(), backlog), 0);
  return fd;
}

// A port whose queue is full: the system ignores whoever connects, as a machine does that is gone.
class SilentPort {
 public:
  SilentPort() {
    for (auto fd = connect(); fd; fd = connect()) waiting_.push_back(std::move(*fd));
  }
  int number() const { return port_of(listener_.get()); }

 private:
  Expected<UniqueFd> connect() const {
    return connect_to("127.0.0.1", number(), steady_clock::now() + 100ms);
  }

  UniqueFd listener_ = listener(0);
  std::vector<UniqueFd> waiting_;
};

// The addresses of a host that has these ports, in this order.
struct Host {
  explicit Host(const std::vector<int>& ports) {
    for (const int port : ports) {
      lists.push_back(std::move(*resolve("127.0.0.1", port)));
      if (lists.size() > 1) lists[lists.size() - 2]->ai_next = lists.back().get();
    }
  }
  ~Host() {
    for (const auto& each : lists) each->ai_next = nullptr;  // each list frees what is its own
  }
  std::vector<AddressList> lists;
};

TEST(ConnectTest, ASilentAddressDoesNotTakeAllTheTime) {
  const SilentPort silent;
  const auto here = listener(5);
  const Host host({silent.number(), silent.number(), port_of(here.get())});
  const auto begin = steady_clock::now();
  EXPECT_TRUE(connect_to(host.lists.front().get(), begin + 5s));
  EXPECT_LT(steady_clock::now() - begin, 2s);
}

TEST(ConnectTest, AnAddressThatRefusesIsLeftAtOnce) {
  const auto here = listener(5);
  auto gone = listener(5);
  const int closed = port_of(gone.get());
  gone.reset();
  std::vector<int> ports(40, closed);  // who waits 250 ms for each of them is too late
  ports.push_back(port_of(here.get()));
  const Host host(ports);
  EXPECT_TRUE(connect_to(host.lists.front().get(), steady_clock::now() + 5s));
}

TEST(ConnectTest, WithoutAnAnswerItEndsAtTheDeadline) {
  const SilentPort silent;
  const Host host({silent.number(), silent.number()});
  const auto begin = steady_clock::now();
  EXPECT_FALSE(connect_to(host.lists.front().get(), begin + 400ms));
  EXPECT_GE(steady_clock::now() - begin, 400ms);
  EXPECT_LT(steady_clock::now() - begin, 2s);
}

TEST(ConnectTest, TheReasonIsSaid) {
  auto gone = listener(5);
  const int closed = port_of(gone.get());
  gone.reset();
  EXPECT_EQ(connect_to("127.0.0.1", closed, steady_clock::now() + 1s).error(), "Connection refused");
}

TEST(ReservedPortTest, IsNoneThatConnectionsGet) {
  const auto ends = [](PortRange range) { return std::pair(range.first, range.end); };
  EXPECT_EQ(ends(ports_besides({32'768, 61'000})), std::pair(20'000, 29'400));
  EXPECT_EQ(ends(ports_besides({25'000, 61'000})), std::pair(20'000, 25'000));
  EXPECT_EQ(ends(ports_besides({1'024, 61'000})), std::pair(61'000, 65'536));
  int first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  std::set<int> ports;
  for (int i = 0; i < 20; ++i) ports.insert(reserved_port());
  EXPECT_GE(*ports.begin(), 1024);
  EXPECT_GT(ports.size(), 10U);
  if (first < 21'000 && last > 64'000) return;  // on such a machine there is no other
  for (const int port : ports) EXPECT_TRUE(port < first || port > last) << port;
}

}  // namespace
}  // namespace lockstep
