#include "base/host_name.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(HostName, NamesAndAddressesMayBeHosts) {
  for (const char* host : {"head", "node-1.cluster.local.", "my_node", "10.0.0.1", "::1", "fd00:1::1",
                           "fe80::1%eth0", "rechner-\u00fc", "1", "::ffff:10.0.0.1"})
    EXPECT_TRUE(may_be_host(host)) << host;
}

TEST(HostName, WhatNoResolverKnowsIsNone) {
  for (const char* host : {"", "tcp://head", "head:29500", "head/0", "a b", "a,b", " head", "head\n", "-x",
                           "[::1", "::1]", "[::1]:29500", "fd00:::1", "$HOST", "{head}"})
    EXPECT_FALSE(may_be_host(host)) << host;
}

}  // namespace
}  // namespace lockstep
