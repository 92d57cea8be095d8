// At which of its addresses this machine can be reached.
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
  /// In numbers.
  std::string text() const;
  bool is_loopback() const;
};

/// The two ends of the way to another machine.
struct Route {
  Address own;
  Address there;
};

/// The way to `host`, for which nothing is sent. Blocks as long as the system's resolver does.
/// @throws CommError where its name stands for nothing, or no interface leads there
LOCKSTEP_API Route route_to(const std::string& host);

/// The address of the interface `name`. @throws CommError where it has none
LOCKSTEP_API Address address_of_interface(const std::string& name);

/// An address at which other machines may reach this one, whatever its name stands for; the loopback's where
/// there is none. @throws CommError where there are no addresses at all
LOCKSTEP_API Address address_for_others();

/// Whether `host` is a name, other than localhost, that stands for the loopback alone, as a fresh Debian's
/// own name does: to others it may stand for an address of this machine.
LOCKSTEP_API bool is_name_of_loopback(const std::string& host);

/// The interface with the address `text`; empty: none.
LOCKSTEP_API std::string interface_with(const std::string& text);

}  // namespace lockstep::rendezvous
