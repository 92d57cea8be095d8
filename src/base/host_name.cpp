#include "base/host_name.h"

#include <arpa/inet.h>

#include <algorithm>
#include <string>

namespace lockstep {
namespace {

bool is_ipv6(std::string_view host) {
  in6_addr ignored;
  const std::string address(host.substr(0, host.find('%')));  // the rest is its zone
  return ::inet_pton(AF_INET6, address.c_str(), &ignored) == 1;
}

bool may_be_in_name(unsigned char c) {
  const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
  return is_letter || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

}  // namespace

bool may_be_host(std::string_view host) {
  if (host.empty() || host.starts_with('-')) return false;
  return is_ipv6(host) || std::ranges::all_of(host, may_be_in_name);
}

}  // namespace lockstep
