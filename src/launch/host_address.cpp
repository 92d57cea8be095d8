#include "launch/host_address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>

#include <array>
#include <memory>

#include <lockstep/base/log.h>

#include "base/sockets.h"

namespace lockstep::launch {
namespace {

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  const auto number = ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
  return (number >> 24) == 127;
}

std::string text_of(const sockaddr& address) {
  std::array<char, NI_MAXHOST> text{};
  const socklen_t size = address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  ::getnameinfo(&address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

// An address of IPv6 that is of use on one link only needs more than a name.
bool is_for_one_link(const sockaddr& address) {
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

std::string address_of_interface() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  return reachable_address(list);
}

}  // namespace

// As `hostname -I` does.
std::string reachable_address(const ifaddrs* interfaces) {
  for (const int family : {AF_INET, AF_INET6})
    for (const auto* each = interfaces; each != nullptr; each = each->ifa_next) {
      const bool is_up = each->ifa_addr != nullptr && (each->ifa_flags & IFF_UP) != 0;
      if (is_up && each->ifa_addr->sa_family == family && !is_loopback(*each->ifa_addr) &&
          !is_for_one_link(*each->ifa_addr))
        return text_of(*each->ifa_addr);
    }
  return {};
}

std::string address_of_host(const std::string& host) {
  const auto name = host.substr(host.find('@') + 1);
  const auto found = resolve(name, 0);
  if (!found) {
    log_warning("the address of " + name + " is not known here (" + found.error() +
                "); the hosts meet there under this name, or at --master-addr");
    return name;
  }
  const sockaddr* first = nullptr;
  for (const addrinfo* each = found->get(); each != nullptr; each = each->ai_next) {
    const bool is_internet = each->ai_family == AF_INET || each->ai_family == AF_INET6;
    if (!is_internet || is_loopback(*each->ai_addr)) continue;
    if (each->ai_family == AF_INET) return text_of(*each->ai_addr);
    if (first == nullptr) first = each->ai_addr;
  }
  if (first != nullptr) return text_of(*first);
  const auto own = address_of_interface();
  return own.empty() ? "127.0.0.1" : own;
}

}  // namespace lockstep::launch
