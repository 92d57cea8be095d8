// The addresses of this machine, and the one at which others can reach it.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <string>

#include <lockstep/base/export.h>

namespace lockstep::rendezvous {

/// An address of IPv4 or IPv6.
struct LOCKSTEP_API Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  /// The numeric address.
  std::string text() const;
  bool is_loopback() const;
};

/// The addresses of this machine and another one on the route between them.
struct Route {
  Address own;
  Address there;
};

/// The route to `host`, found without sending anything. Blocks as long as the system's resolver does.
/// @throws CommError where its name cannot be resolved, or no interface leads there
LOCKSTEP_API Route route_to(const std::string& host);

/// The address of the interface `name`. @throws CommError where it has none
LOCKSTEP_API Address address_of_interface(const std::string& name);

/// An address at which other machines may reach this one, whatever its host name resolves to; the loopback
/// address where there is none. @throws CommError where there are no addresses at all
LOCKSTEP_API Address address_for_others();

/// Whether `host` is a name, other than localhost, that resolves to the loopback address alone, as the host
/// name of a fresh Debian does: other machines may resolve it to an address of this machine.
LOCKSTEP_API bool is_name_of_loopback(const std::string& host);

/// The interface with the address `text`; empty: none.
LOCKSTEP_API std::string interface_with(const std::string& text);

}  // namespace lockstep::rendezvous
