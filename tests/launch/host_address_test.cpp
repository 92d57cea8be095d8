// At which of its addresses a machine can be reached.
#include "launch/remote_host.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>

#include <deque>

namespace lockstep::launch {
namespace {

// Interfaces of a machine, in the order in which the kernel would list them.
class Interfaces {
 public:
  Interfaces& add(const char* address, unsigned flags = IFF_UP) {
    auto& at = addresses_.emplace_back();
    at.v4.sin_family = AF_INET;
    if (::inet_pton(AF_INET, address, &at.v4.sin_addr) != 1) {
      at.v6.sin6_family = AF_INET6;
      EXPECT_EQ(::inet_pton(AF_INET6, address, &at.v6.sin6_addr), 1);
    }
    auto& added = list_.emplace_back();
    added.ifa_addr = reinterpret_cast<sockaddr*>(&at);
    added.ifa_flags = flags;
    if (list_.size() > 1) list_[list_.size() - 2].ifa_next = &added;
    return *this;
  }
  std::string reachable() const { return reachable_address(list_.empty() ? nullptr : &list_.front()); }

 private:
  union Address {
    sockaddr_storage any{};
    sockaddr_in v4;
    sockaddr_in6 v6;
  };
  std::deque<Address> addresses_;
  std::deque<ifaddrs> list_;
};

TEST(HostAddressTest, AHostWithIpv6OnlyHasAnAddress) {
  Interfaces interfaces;
  interfaces.add("127.0.0.1").add("::1").add("fe80::1").add("2001:db8::5");
  EXPECT_EQ(interfaces.reachable(), "2001:db8::5");
}

TEST(HostAddressTest, Ipv4GoesFirst) {
  Interfaces interfaces;
  interfaces.add("127.0.0.1").add("fd00::2").add("10.0.0.9", 0).add("10.0.0.3");
  EXPECT_EQ(interfaces.reachable(), "10.0.0.3");
}

TEST(HostAddressTest, AMachineMayBeAlone) {
  EXPECT_EQ(Interfaces().reachable(), "");
  EXPECT_EQ(Interfaces().add("127.0.0.1").add("fe80::1").reachable(), "");
}

}  // namespace
}  // namespace lockstep::launch
