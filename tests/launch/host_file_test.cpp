#include <gmock/gmock.h>

#include <fstream>

#include <lockstep/base/error.h>
#include <lockstep/launch/host_file.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

std::string text_of(const std::vector<Host>& hosts) {
  std::string text;
  for (const auto& host : hosts) {
    text += (text.empty() ? "" : " ") + host.name + "=";
    for (const int slot : host.slots) text += std::to_string(slot);
    if (!host.has_all_slots) text += "*";
  }
  return text;
}

TEST(HostFile, IsReadAsDeepSpeedReadsIt) {
  EXPECT_EQ(text_of(parse_host_file(
                "worker-0 slots=4\n\n# a comment\n  user@b\t slots=2  # two\r\n10.0.0.7 slots=1", "hosts")),
            "worker-0=0123 user@b=01 10.0.0.7=0");
}

struct BadLine {
  std::string text;
  std::vector<std::string> words;
};

TEST(HostFile, RefusalsNameFileLineAndText) {
  for (const auto& [text, words] : std::vector<BadLine>{
           {"a slots=1\nb\n", {"hosts:2", "HOST slots=N", "\"b\""}},
           {"a slots=\n", {"hosts:1", "slots=N", "\"a slots=\""}},
           {"a slots=0\n", {"hosts:1", "from 1 to"}},
           {"a slots=-1\n", {"hosts:1", "from 1 to"}},
           {"a slots=+1\n", {"hosts:1", "from 1 to"}},
           {"a slots=2x\n", {"hosts:1", "\"a slots=2x\""}},
           {std::string("a\0b slots=1\n", 12), {"hosts:1", "\"a?b slots=1\""}},
           {"a\x1b[31m slots=1\n", {"hosts:1", "\"a?[31m slots=1\""}},
           {"a slots=99999999999\n", {"hosts:1", "65536"}},
           {"a max_slots=2\n", {"hosts:1", "HOST slots=N"}},
           {"a slots=2 max_slots=4\n", {"hosts:1", "what follows slots=2", "\"a slots=2 max_slots=4\""}},
           {"slots=2\n", {"hosts:1", "HOST slots=N"}},
           {"-oProxyCommand=sh slots=2\n", {"hosts:1", "HOST slots=N"}},
           {"a slots=1\n#\na slots=2\n", {"hosts:3", "host a is there twice", "line 1", "\"a slots=2\""}},
           {"# nothing\n", {"hosts", "no host"}},
           {"", {"hosts", "no host"}}}) {
    SCOPED_TRACE(text);
    test::expect_error<ConfigError>([&] { parse_host_file(text, "hosts"); }, words);
  }
}

TEST(HostFile, WhatCannotBeReadIsNamed) {
  test::expect_error<ConfigError>([] { read_host_file("/no/such/file"); }, {"/no/such/file", "No such file"});
  test::expect_error<ConfigError>([] { read_host_file("/"); }, {"host file /", "a folder"});
}

struct Filtered {
  std::string include;
  std::string exclude;
  std::string left;
};

TEST(HostFilter, KeepsWhatDeepSpeedsKeeps) {
  const auto hosts = parse_host_file("a slots=4\nb slots=4\nc slots=2\n", "hosts");
  for (const auto& [include, exclude, left] : std::vector<Filtered>{{"", "", "a=0123 b=0123 c=01"},
                                                                    {"a@b:0,2", "", "a=0123 b=02*"},
                                                                    {"c@a:3,1,1", "", "a=13* c=01"},
                                                                    {"a:1@a:2", "", "a=2*"},
                                                                    {"a:0,1,2,3", "", "a=0123"},
                                                                    {"", "b:0", "a=0123 b=123* c=01"},
                                                                    {"", "b@a:0,1", "a=23* c=01"},
                                                                    {"", "c:0@c:1", "a=0123 b=0123"}}) {
    SCOPED_TRACE(include + "|" + exclude);
    EXPECT_EQ(text_of(filter_hosts(hosts, include, exclude)), left);
  }
}

TEST(HostFilter, RefusalsNameFlagAndText) {
  const auto hosts = parse_host_file("worker-0 slots=2\nworker-1 slots=2\n", "hosts");
  const auto refuses = [&](const std::string& include, const std::string& exclude,
                           const std::vector<std::string>& words) {
    SCOPED_TRACE(include + "|" + exclude);
    test::expect_error<ConfigError>([&] { filter_hosts(hosts, include, exclude); }, words);
  };
  refuses("worker-0", "worker-1", {"--include", "--exclude is given, too"});
  refuses("worker-2", "", {"--include", "host \"worker-2\"", "did you mean worker-"});
  refuses("", "other:0", {"--exclude", "host \"other\""});
  refuses("worker-0:2", "", {"slot \"2\" of host worker-0", "0 to 1"});
  refuses("worker-0:", "", {"slot \"\""});
  refuses("worker-0:a", "", {"slot \"a\""});
  refuses("worker-0@", "", {"host \"\""});
  refuses("", "worker-0@worker-1", {"no host is left", "worker-0@worker-1"});
}

}  // namespace
}  // namespace lockstep
