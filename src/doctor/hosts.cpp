#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/format.h"
#include "base/sockets.h"
#include "doctor/network.h"
#include "rendezvous/addresses.h"

namespace lockstep::doctor {
namespace {

using std::chrono::steady_clock;

constexpr double kSlowResolverSeconds = 1;

rendezvous::Address address_in(const addrinfo& found) {
  rendezvous::Address address;
  address.length = found.ai_addrlen;
  std::memcpy(&address.storage, found.ai_addr, found.ai_addrlen);
  return address;
}

void add_addresses(HostFacts& facts, const AddressList& list) {
  facts.is_loopback_only = true;
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    const auto address = address_in(*each);
    facts.is_loopback_only &= address.is_loopback();
    const auto text = address.text();
    if (std::ranges::find(facts.addresses, text) == facts.addresses.end()) facts.addresses.push_back(text);
  }
}

void add_route(HostFacts& facts) {
  try {
    facts.route = rendezvous::route_to(facts.name).own.text();
  } catch (const CommError& failure) {
    facts.route_failure = failure.what();
  }
}

constexpr auto kNameForOthers =
    "Ranks of lockstep need nothing: they take the interface that leads to the main address, or the one that "
    "GLOO_SOCKET_IFNAME names. With several hosts give --master-addr or --rdzv-endpoint an address. Ranks of "
    "PyTorch advertise this name: add it to /etc/hosts with the machine's address.";

Findings judge_own_name(const HostFacts& facts) {
  if (!facts.failure.empty())
    return {warning("The host name " + facts.name + " cannot be resolved (" + facts.failure + ").",
                    kNameForOthers)};
  const auto text = facts.name + " is " + joined(facts.addresses);
  if (!facts.is_loopback_only) return {ok(text)};
  return {
      note(text + ", the loopback: other machines cannot reach this one at what the name stands for here.",
           kNameForOthers)};
}

Findings judge_other_host(const HostFacts& facts) {
  if (!facts.failure.empty())
    return {error("The host " + facts.name + " cannot be resolved (" + facts.failure + ").",
                  "Check the name, /etc/hosts and the name server, or give its address.")};
  const bool is_number = facts.addresses == std::vector{facts.name};
  const auto text = is_number ? facts.name : facts.name + " is " + joined(facts.addresses);
  if (!facts.route_failure.empty())
    return {error(text + "; " + facts.route_failure, "Look at ip address and ip route.")};
  return {ok(text + ", reached from " + facts.route + " (nothing was sent: a firewall is not seen)")};
}

}  // namespace

HostFacts host_facts(const std::string& name, bool is_own) {
  HostFacts facts{.name = name, .is_own = is_own};
  const auto begin = steady_clock::now();
  const auto found = resolve(name, 0);
  facts.resolver_s = std::chrono::duration<double>(steady_clock::now() - begin).count();
  if (!found) {
    facts.failure = found.error();
    return facts;
  }
  add_addresses(facts, *found);
  add_route(facts);
  return facts;
}

Findings judge(const HostFacts& facts) {
  auto findings = facts.is_own ? judge_own_name(facts) : judge_other_host(facts);
  if (facts.resolver_s > kSlowResolverSeconds)
    findings.push_back(
        with_value(warning("The system's resolver took " + two_digits(facts.resolver_s) + " s for " +
                               facts.name + ", for which each rank waits.",
                           "Put the names of the job's hosts into /etc/hosts, or use addresses."),
                   facts.resolver_s, "seconds"));
  return findings;
}

}  // namespace lockstep::doctor
