// Stores: their contract, and servers that do not answer.
#include <lockstep/comm/store.h>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <thread>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>

#include "comm/listener.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr auto kSoon = 20s;  // far below the time that the stores would wait for an answer

class StoreContract : public ::testing::TestWithParam<bool> {
 protected:
  static Store make() { return GetParam() ? make_tcp_store({.is_server = true}) : make_hash_store(); }
};
INSTANTIATE_TEST_SUITE_P(Kinds, StoreContract, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Tcp" : "Hash"; });

TEST_P(StoreContract, SetsGetsAddsWaits) {
  auto store = make();
  EXPECT_EQ(store_port(store) > 0, GetParam());
  EXPECT_FALSE(store.check("a"));
  store.set("a", std::string("1\0002", 3));
  EXPECT_TRUE(store.check("a"));
  EXPECT_EQ(store.get("a", 1s), std::string("1\0002", 3));
  EXPECT_EQ(store.add("n", 2), 2);
  EXPECT_EQ(store.add("n", 3), 5);
  const std::vector<std::string> keys{"a", "b"};
  EXPECT_FALSE(store.wait(keys, 0ms));
  EXPECT_FALSE(store.wait(keys, 20ms));
  EXPECT_THAT([&] { store.get("b", 20ms); }, ThrowsMessage<Timeout>(HasSubstr("key b")));
  auto copy = store;
  copy.set("b", "");
  EXPECT_TRUE(store.wait(keys, 1s));
  EXPECT_EQ(store.get("b", 1s), "");
}

TEST_P(StoreContract, WhatIsTooLongIsRefusedAndTheStoreStaysUsable) {
  auto store = make();
  const std::string longest(8 << 20, 'x');
  store.set("longest", longest);
  EXPECT_EQ(store.get("longest", 10s), longest);
  EXPECT_THAT([&] { store.set("a", longest + 'x'); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("the value of key a is too long"), HasSubstr("8388609 bytes"))));
  EXPECT_THROW(store.set(longest + 'x', "a"), ConfigError);
  EXPECT_EQ(store.add("n", 1), 1);
}

TEST_P(StoreContract, AddingToTextSaysThatThatMayBeIt) {
  auto store = make();
  store.set("text", "a");
  EXPECT_THAT([&] { store.add("text", 1); },
              ThrowsMessage<CommError>(HasSubstr("may hold something else than a number")));
}

TEST_P(StoreContract, WaitsForEverIfAsked) {
  auto store = make();
  const std::string key = "late";
  std::jthread other([store]() mutable {
    std::this_thread::sleep_for(100ms);
    store.set("late", "");
  });
  EXPECT_TRUE(store.wait(std::span(&key, 1), std::chrono::milliseconds::max()));
}

TEST_P(StoreContract, WhoWaitsForAKeyHoldsUpNoOther) {
  auto store = make();
  const std::string key = "late";
  std::jthread other([store, &key]() mutable { EXPECT_TRUE(store.wait(std::span(&key, 1), 60s)); });
  std::this_thread::sleep_for(50ms);
  const auto start = steady_clock::now();
  EXPECT_EQ(store.add("n", 1), 1);
  store.set(key, "");
  other.join();
  EXPECT_LT(steady_clock::now() - start, kSoon);
}

TEST(TcpStore, PassesLargeValues) {
  auto server = make_tcp_store({.is_server = true});
  auto client = make_tcp_store({.port = store_port(server)});
  const std::string value(5'000'000, 'x');
  client.set("large", value);
  EXPECT_EQ(server.get("large", 10s), value);
}

TEST(TcpStore, RefusesPortsThatAreNone) {
  EXPECT_THAT(([] { make_tcp_store({.port = 65536 + 80, .is_server = true}); }),
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("65616"), HasSubstr("0 to 65535"))));
  EXPECT_THROW(make_tcp_store({.port = 0}), ConfigError);
}

/// Answers the first client's greeting, as c10d's server does, and then nobody any more: to those who call it
/// looks like one whose process is stopped.
class StoppedServer {
 public:
  StoppedServer() {
    test::Listener listener;
    port_ = listener.port();
    listener_ = UniqueFd(listener.release());
    greeter_ = std::jthread([this] {
      client_ = UniqueFd(accept(listener_.get(), nullptr, nullptr));
      std::array<char, 10> greeting;  // a magic number and a ping with a nonce
      if (recv(client_.get(), greeting.data(), greeting.size(), MSG_WAITALL) == 10)
        (void)send(client_.get(), greeting.data() + 6, 4, MSG_NOSIGNAL);
    });
  }
  ~StoppedServer() { shutdown(listener_.get(), SHUT_RDWR); }  // where nobody has called
  StoppedServer(const StoppedServer&) = delete;
  StoppedServer& operator=(const StoppedServer&) = delete;

  int port() const { return port_; }

 private:
  UniqueFd listener_;
  UniqueFd client_;
  int port_ = 0;
  std::jthread greeter_;
};

TEST(TcpStore, CallsEndWhereTheServerDoesNotAnswer) {
  const StoppedServer server;
  auto store = make_tcp_store({.port = server.port(), .timeout = 3s});  // time to connect on a busy machine
  const auto start = steady_clock::now();
  EXPECT_THAT([&] { store.add("n", 1); },
              ThrowsMessage<Timeout>(AllOf(HasSubstr("no answer from 127.0.0.1"), HasSubstr("stopped"))));
  EXPECT_THROW(store.check("n"), Timeout);
  EXPECT_LT(steady_clock::now() - start, kSoon);
}

TEST(TcpStore, WaitsEndWhereTheServerDoesNotAnswer) {
  const StoppedServer server;
  auto store = make_tcp_store({.port = server.port(), .timeout = 10min});
  const auto start = steady_clock::now();
  const std::string key = "a";
  EXPECT_FALSE(store.wait(std::span(&key, 1), 100ms));
  EXPECT_THROW(store.get(key, 100ms), Timeout);
  EXPECT_LT(steady_clock::now() - start, kSoon);
}

TEST(TcpStore, CallsFailWhenTheServerIsGone) {
  auto server = std::make_unique<Store>(make_tcp_store({.is_server = true}));
  auto client = make_tcp_store({.port = store_port(*server)});
  client.set("a", "");
  server.reset();
  EXPECT_THAT([&] { client.add("n", 1); }, ThrowsMessage<CommError>(HasSubstr("store: add n failed")));
}

}  // namespace
}  // namespace lockstep
