// What is said of names, interfaces and ports.
#include <gmock/gmock.h>

#include <string>

#include "doctor/network.h"
#include "doctor/support.h"

namespace lockstep::doctor {
namespace {

using ::testing::HasSubstr;

TEST(DoctorHosts, TheOwnNameMayStandForTheLoopbackOrNothing) {
  HostFacts facts{.name = "box", .is_own = true, .addresses = {"10.0.0.7"}};
  EXPECT_TRUE(is_all_fine(judge(facts)));
  facts.addresses = {"127.0.1.1"};
  facts.is_loopback_only = true;
  EXPECT_THAT(notes(judge(facts)), HasSubstr("box is 127.0.1.1, the loopback"));
  EXPECT_THAT(notes(judge(facts)), HasSubstr("GLOO_SOCKET_IFNAME"));
  facts = {.name = "box", .is_own = true, .failure = "Name or service not known"};
  EXPECT_THAT(warnings(judge(facts)), HasSubstr("box cannot be resolved (Name or service not known)"));
  EXPECT_THAT(warnings(judge(facts)), HasSubstr("/etc/hosts"));
  EXPECT_EQ(errors(judge(facts)), "");
}

TEST(DoctorHosts, AnotherHostMustHaveAnAddressAndARoute) {
  HostFacts facts{.name = "other", .addresses = {"10.0.0.8", "fd00::8"}, .route = "10.0.0.7"};
  EXPECT_TRUE(is_all_fine(judge(facts)));
  EXPECT_THAT(fine(judge(facts)), HasSubstr("other is 10.0.0.8, fd00::8, reached from 10.0.0.7"));
  facts.route_failure = "no interface leads to other";
  EXPECT_THAT(errors(judge(facts)), HasSubstr("no interface leads to other"));
  EXPECT_THAT(errors(judge(HostFacts{.name = "other", .failure = "unknown"})),
              HasSubstr("cannot be resolved"));
}

TEST(DoctorHosts, ASlowResolverIsAWarningWithItsTime) {
  const auto findings = judge(HostFacts{.name = "other", .addresses = {"10.0.0.8"}, .resolver_s = 5});
  EXPECT_THAT(warnings(findings), HasSubstr("took 5.00 s for other"));
  EXPECT_EQ(findings.back().value, 5);
}

TEST(DoctorHosts, AreLookedUpInTheSystemsTables) {
  const auto known = host_facts("localhost", true);
  EXPECT_EQ(known.failure, "");
  EXPECT_TRUE(known.is_loopback_only);
  EXPECT_FALSE(known.addresses.empty());
  const auto number = host_facts("127.0.0.1", false);
  EXPECT_EQ(number.addresses, std::vector<std::string>{"127.0.0.1"});
  EXPECT_EQ(number.route, "127.0.0.1");
  EXPECT_THAT(fine(judge(number)), ::testing::StartsWith("127.0.0.1, reached from 127.0.0.1"));
  EXPECT_NE(host_facts("no host has this name", true).failure, "");
}

InterfaceFacts usual_interfaces() {
  return {.interfaces = {{.name = "lo", .is_up = true, .is_loopback = true, .addresses = {"127.0.0.1"}},
                         {.name = "eth0", .is_up = true, .addresses = {"10.0.0.7"}},
                         {.name = "eth1"}},
          .for_others = "10.0.0.7"};
}

TEST(DoctorInterfaces, AreListedWithTheirAddresses) {
  const auto findings = judge(usual_interfaces());
  EXPECT_TRUE(is_all_fine(findings));
  for (const auto* text : {"lo: 127.0.0.1", "eth0: 10.0.0.7", "eth1 is down"})
    EXPECT_THAT(fine(findings), HasSubstr(text));
}

TEST(DoctorInterfaces, OfSeveralOneIsChosen) {
  auto facts = usual_interfaces();
  facts.interfaces[2] = {.name = "eth1", .is_up = true, .addresses = {"10.1.0.7"}};
  EXPECT_THAT(notes(judge(facts)), HasSubstr("Several interfaces lead to other machines"));
  facts.named = "eth1";
  EXPECT_THAT(notes(judge(facts)), HasSubstr("GLOO_SOCKET_IFNAME names eth1: ranks talk by it"));
}

TEST(DoctorInterfaces, OneThatIsNamedMustBeThereAndUp) {
  auto facts = usual_interfaces();
  facts.named = "eth0,eth1,ib0";
  EXPECT_THAT(errors(judge(facts)), HasSubstr("names eth1, which is down"));
  EXPECT_THAT(errors(judge(facts)), HasSubstr("names ib0, which is no interface"));
}

TEST(DoctorInterfaces, RanksOfOneMachineNeedTheLoopback) {
  auto facts = usual_interfaces();
  facts.interfaces[0].is_up = false;
  facts.interfaces.erase(facts.interfaces.begin() + 1);
  EXPECT_THAT(errors(judge(facts)), HasSubstr("ip link set lo up"));
  EXPECT_THAT(notes(judge(facts)), HasSubstr("No interface leads to other machines"));
}

TEST(DoctorPorts, OneMustBeFreeAndThoseOfLaunchersAreNamed) {
  PortFacts facts{.free_port = 23'456};
  EXPECT_TRUE(is_all_fine(judge(facts)));
  facts.taken = {{29'400, "Address already in use"}, {29'500, "Address already in use"}};
  EXPECT_THAT(notes(judge(facts)), HasSubstr("Port 29500 cannot be listened at (Address already in use)"));
  EXPECT_THAT(notes(judge(facts)), HasSubstr("--rdzv-endpoint HOST:PORT"));
  EXPECT_THAT(errors(judge(PortFacts{.failure = "none is free"})),
              HasSubstr("No TCP port is free: none is free"));
}

}  // namespace
}  // namespace lockstep::doctor
