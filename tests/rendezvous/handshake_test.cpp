// How a connection with a server begins, and what becomes of those that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>
#include <vector>

#include <lockstep/base/error.h>

#include "rendezvous/client.h"
#include "rendezvous/frames.h"
#include "rendezvous/store_server.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

const std::string kJobKey = "the token of this job";

Deadline soon() { return steady_clock::now() + 5s; }

// What is said within `patience`, at most so many bytes.
std::string heard(const UniqueFd& socket, std::size_t most, milliseconds patience = 5000ms) {
  const auto deadline = steady_clock::now() + patience;
  std::string text;
  while (text.size() < most && await_ready(socket.get(), POLLIN, deadline)) {
    char letter = 0;
    const auto count = ::recv(socket.get(), &letter, 1, 0);
    if (count == 0 || (count < 0 && errno != EAGAIN)) break;
    if (count > 0) text += letter;
  }
  return text;
}

void say(const UniqueFd& socket, std::string_view text) {
  EXPECT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

// A server that does with each caller what it is told, one after the other.
class Impolite {
 public:
  explicit Impolite(std::function<void(UniqueFd)> meet)
      : bound_(listen_by({"127.0.0.1", 0}, soon())), thread_([this, meet](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            if (!await_ready(bound_.fds.front().get(), POLLIN, steady_clock::now() + 20ms)) continue;
            UniqueFd caller(::accept4(bound_.fds.front().get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (caller) meet(std::move(caller));
          }
        }) {}

  const TcpEndpoint& endpoint() const { return bound_.endpoint; }

 private:
  BoundSocket bound_;
  std::jthread thread_;
};

std::string failure_of(const TcpEndpoint& endpoint, bool is_final, bool is_foreign,
                       const std::string& key = kJobKey, milliseconds patience = 5000ms) {
  const auto link = FrameLink::connect(endpoint, key, steady_clock::now() + patience);
  EXPECT_FALSE(link);
  if (link) return {};
  EXPECT_EQ(link.error().is_final, is_final) << link.error().text;
  EXPECT_EQ(link.error().is_foreign, is_foreign) << link.error().text;
  return link.error().text;
}

TEST(HandshakeTest, AConnectionThatIsCutBehindTheProofIsNoRefusal) {
  const Impolite server([](const UniqueFd& caller) {
    say(caller, std::string(kServerGreeting) + random_bytes(kChallengeBytes));
    heard(caller, kChallengeBytes + kProofBytes);
  });
  failure_of(server.endpoint(), false, false);
  EXPECT_THROW(KvClient(server.endpoint(), kJobKey, 300ms), Timeout)
      << "it is tried again until the deadline";
}

TEST(HandshakeTest, ARefusalIsFinalAndSaysWhy) {
  const StoreServer server(listen_by({"127.0.0.1", 0}, soon()), kJobKey);
  EXPECT_THAT(failure_of(server.endpoint(), true, false, "another"), HasSubstr("another token"));
}

TEST(HandshakeTest, WhoAsksForPatienceGetsIt) {
  const Impolite server([](const UniqueFd& caller) {
    say(caller, std::string(kServerGreeting) + random_bytes(kChallengeBytes));
    heard(caller, kChallengeBytes + kProofBytes);
    say(caller, static_cast<char>(Welcome::kLater) + reason("not now\x1b[31m"));
  });
  EXPECT_EQ(failure_of(server.endpoint(), false, false), "not now?[31m");
}

TEST(HandshakeTest, OtherProgramsAreKnownByTheirFirstWords) {
  const Impolite shell([](const UniqueFd& caller) {
    say(caller, "SSH-2.0\r\n");
    heard(caller, 1);
  });
  EXPECT_THAT(failure_of(shell.endpoint(), true, true), HasSubstr("another program answers there"));
  const Impolite older([](const UniqueFd& caller) {
    say(caller, "lockstp1");
    heard(caller, 1);
  });
  EXPECT_THAT(failure_of(older.endpoint(), true, true), HasSubstr("another version of lockstep"));
  const Impolite silent([](const UniqueFd& caller) { heard(caller, 1); });
  EXPECT_THAT(failure_of(silent.endpoint(), false, true, kJobKey, 300ms), HasSubstr("says nothing"));
}

TEST(HandshakeTest, WhoIsTurnedAwayIsTold) {
  const StoreServer server(listen_by({"127.0.0.1", 0}, soon()), kJobKey);
  const auto silent = connect_to("127.0.0.1", server.endpoint().port, soon());
  ASSERT_TRUE(silent);
  const auto text = heard(*silent, 1000);
  EXPECT_EQ(text.substr(kServerGreeting.size() + kChallengeBytes, 1)[0], static_cast<char>(Welcome::kLater));
  EXPECT_THAT(text, HasSubstr("too long to show the token"));
}

TEST(HandshakeTest, ThoseWhoSayNothingMakeRoomForThoseWhoHaveBegun) {
  const StoreServer server(listen_by({"127.0.0.1", 0}, soon()), kJobKey);
  const auto stranger = [&] {
    auto socket = connect_to("127.0.0.1", server.endpoint().port, soon());
    return socket ? std::move(*socket) : UniqueFd();
  };
  const auto slow = stranger();
  const auto theirs = heard(slow, kServerGreeting.size() + kChallengeBytes).substr(kServerGreeting.size());
  const auto own = random_bytes(kChallengeBytes);
  say(slow, own);
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 255; ++i) crowd.push_back(stranger());
  heard(crowd.back(), kServerGreeting.size() + kChallengeBytes);  // all have been accepted
  std::this_thread::sleep_for(400ms);                             // more than one needs to answer
  for (int i = 0; i < 100; ++i) crowd.push_back(stranger());
  heard(crowd.back(), kServerGreeting.size() + kChallengeBytes);
  say(slow, proof(kJobKey, Side::kClient, theirs, own));
  EXPECT_EQ(heard(slow, 1), std::string(1, static_cast<char>(Welcome::kTrusted)));
}

TEST(ListenTest, OnAllAddressesThatANameHas) {
  const auto bound = try_listen({"localhost", 0});
  ASSERT_TRUE(bound);
  const auto addresses = resolve("localhost", bound->endpoint.port);
  ASSERT_TRUE(addresses);
  for (auto* each = addresses->get(); each != nullptr; each = each->ai_next) {
    addrinfo alone = *each;
    alone.ai_next = nullptr;
    EXPECT_TRUE(connect_to(&alone, soon())) << "family " << each->ai_family;
  }
}

TEST(ListenTest, OnNoAddressWhereOneIsTaken) {
  const auto taken = try_listen({"127.0.0.1", 0});
  ASSERT_TRUE(taken);
  const auto outcome = try_listen({"localhost", taken->endpoint.port});
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().error, EADDRINUSE);
}

TEST(ListenTest, EverywhereIsAlsoWhereNoNameLeads) {
  const auto bound = try_listen_everywhere(0);
  ASSERT_TRUE(bound);
  EXPECT_TRUE(connect_to("127.0.0.7", bound->endpoint.port, soon()));
  EXPECT_TRUE(connect_to(bound->endpoint.host, bound->endpoint.port, soon()));
}

TEST(ListenTest, ANameThatIsNotKnownYetIsAskedForAgain) {
  const auto begin = steady_clock::now();
  EXPECT_THROW(listen_by({"no-such-host.invalid", 0}, begin + 300ms), CommError);
  EXPECT_GE(steady_clock::now() - begin, 200ms);
}

}  // namespace
}  // namespace lockstep::rendezvous
