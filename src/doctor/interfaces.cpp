#include <algorithm>
#include <sstream>
#include <string>

#include <lockstep/base/env.h>

#include "base/format.h"
#include "base/sockets.h"
#include "doctor/network.h"
#include "rendezvous/addresses.h"

namespace lockstep::doctor {
namespace {

using rendezvous::NetworkInterface;

// Where the launchers of several nodes meet: with numbers of nodes that are given, and with those that
// change.
constexpr int kLauncherPorts[] = {29'500, 29'400};

bool leads_outside(const NetworkInterface& interface) {
  return interface.is_up && !interface.is_loopback && !interface.addresses.empty();
}

std::string interface_text(const NetworkInterface& interface) {
  if (!interface.is_up) return interface.name + " is down";
  return interface.name + ": " + (interface.addresses.empty() ? "no address" : joined(interface.addresses));
}

// Of those that GLOO_SOCKET_IFNAME names, with commas between them.
Findings judge_named(const InterfaceFacts& facts) {
  Findings findings;
  std::istringstream names(*facts.named);
  for (std::string name; std::getline(names, name, ',');) {
    const auto known = std::ranges::find(facts.interfaces, name, &NetworkInterface::name);
    if (known == facts.interfaces.end())
      findings.push_back(
          error("GLOO_SOCKET_IFNAME names " + name + ", which is no interface of this machine.",
                "Name one of those above, or unset it."));
    else if (!known->is_up || known->addresses.empty())
      findings.push_back(error("GLOO_SOCKET_IFNAME names " + name + ", which is down or has no address.",
                               "ip link set " + name + " up, or name another one."));
    else
      findings.push_back(note("GLOO_SOCKET_IFNAME names " + name + ": ranks talk by it."));
  }
  return findings;
}

}  // namespace

InterfaceFacts interface_facts() {
  InterfaceFacts facts{.named = env::get("GLOO_SOCKET_IFNAME")};
  try {
    facts.interfaces = rendezvous::network_interfaces();
    facts.for_others = rendezvous::address_for_others().text();
  } catch (const CommError& failure) {
    facts.failure = failure.what();
  }
  return facts;
}

Findings judge(const InterfaceFacts& facts) {
  Findings findings;
  for (const auto& interface : facts.interfaces) findings.push_back(ok(interface_text(interface)));
  if (!facts.failure.empty())
    findings.push_back(error(facts.failure, "Ranks talk by TCP, also on one machine."));
  const bool has_loopback = std::ranges::any_of(facts.interfaces, [](const auto& each) {
    return each.is_loopback && each.is_up && !each.addresses.empty();
  });
  if (!has_loopback && facts.failure.empty())
    findings.push_back(
        error("The loopback interface is down or has no address: ranks of one machine meet there.",
              "ip link set lo up."));
  const auto outside = std::ranges::count_if(facts.interfaces, leads_outside);
  if (outside == 0)
    findings.push_back(
        note("No interface leads to other machines: ranks of this one can meet, others cannot."));
  if (outside > 1 && !facts.named)
    findings.push_back(
        note("Several interfaces lead to other machines; ranks take the one that leads to the main "
             "address. Others may reach this machine at " +
                 facts.for_others + ".",
             "GLOO_SOCKET_IFNAME names another one, on each host."));
  if (facts.named)
    for (auto& finding : judge_named(facts)) findings.push_back(std::move(finding));
  return findings;
}

PortFacts port_facts() {
  PortFacts facts;
  try {
    facts.free_port = reserved_port();
  } catch (const ConfigError& failure) {
    facts.failure = failure.what();
  }
  for (const int port : kLauncherPorts)
    if (const auto bound = rendezvous::try_listen_everywhere(port); !bound)
      facts.taken[port] = bound.error().text;
  return facts;
}

Findings judge(const PortFacts& facts) {
  Findings findings;
  if (facts.free_port > 0)
    findings.push_back(with_value(ok("A port is free, such as " + std::to_string(facts.free_port)),
                                  facts.free_port, "port"));
  else
    findings.push_back(
        error("No TCP port is free: " + facts.failure, "End programs that hold many connections."));
  for (const auto& [port, reason] : facts.taken)
    findings.push_back(note("Port " + std::to_string(port) + " cannot be listened at (" + reason +
                                "); launchers of several nodes meet there unless told otherwise.",
                            port == kLauncherPorts[0] ? "Give --master-port another one."
                                                      : "Give --rdzv-endpoint HOST:PORT another one."));
  return findings;
}

}  // namespace lockstep::doctor
