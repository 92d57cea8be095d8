// The address at which other ranks can reach this one, from GLOO_SOCKET_IFNAME or the way to the master.
#include "comm/join/joining.h"

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "base/system.h"
#include "rendezvous/addresses.h"

namespace lockstep::detail {
namespace {

// Gloo takes several interfaces; one is enough for us.
std::string first_interface() {
  const auto names = env::get("GLOO_SOCKET_IFNAME").value_or("");
  return names.substr(0, names.find(','));
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "localhost" || address == "::1" || address == "[::1]";
}

std::string seen_key(int rank) { return "main_address/seen_by/" + std::to_string(rank); }
constexpr auto kAgreedKey = "main_address/agreed";

std::string value_of(Store& store, const std::string& key, const CommOptions& options) {
  if (!store.wait(std::span(&key, 1), options.timeout))
    throw Timeout("comm", {.what = "a rank joined, but does not say how it sees the main address",
                           .got = "no key " + key});
  return store.get(key, options.timeout);
}

// The address at which other machines see that of rank 0; `own` where all ranks are on one machine.
std::string seen_from_outside(Store& store, const CommOptions& options, const std::string& own) {
  for (int rank = 1; rank < options.world_size; ++rank) {
    const auto seen = value_of(store, seen_key(rank), options);
    if (!is_loopback(seen)) return seen;
  }
  return own;
}

// A rank that cannot tell has an interface named, or fails in a moment.
std::string seen_main_address(const std::string& main) {
  try {
    return rendezvous::route_to(main).there.text();
  } catch (const CommError&) {
    return "127.0.0.1";
  }
}

// Ranks that meet in a file know no address: this is the address of the machine's name, if it has one.
rendezvous::Address address_of_machine() {
  try {
    const auto own = rendezvous::route_to(host_name()).own;
    if (!own.is_loopback()) return own;
  } catch (const CommError&) {
  }
  return rendezvous::address_for_others();
}

}  // namespace

ConnectOptions with_own_address(const CommOptions& options, Store store) {
  const auto& main = options.main_address;
  const auto interface = first_interface();
  const bool is_named = !main.empty() && !is_loopback(main);
  if (is_named && options.rank != 0) store.set(seen_key(options.rank), seen_main_address(main));
  ConnectOptions own{options};
  if (!interface.empty())
    own.own_address = rendezvous::address_of_interface(interface).text();
  else
    own.own_address = (main.empty() ? address_of_machine() : rendezvous::route_to(main).own).text();
  if (!is_named) return own;
  const bool is_unknown = interface.empty() && is_loopback(own.own_address);
  if (is_unknown && options.rank != 0) own.own_address = value_of(store, kAgreedKey, options);
  if (options.rank == 0) {
    if (is_unknown) own.own_address = seen_from_outside(store, options, own.own_address);
    store.set(kAgreedKey, own.own_address);
  }
  return own;
}

// Python advertises the address of its machine's name, and so does Gloo here, unless that is the loopback.
ConnectOptions with_own_address(const CommOptions& options) {
  const auto& main = options.main_address;
  if (!first_interface().empty() || main.empty() || is_loopback(main)) return {options};
  const auto own = rendezvous::route_to(main).own;
  return own.is_loopback() ? ConnectOptions{options} : ConnectOptions{options, own.text()};
}

}  // namespace lockstep::detail
