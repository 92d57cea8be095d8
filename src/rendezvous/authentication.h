// Who may speak on a connection: both sides show that they know a key, without sending it.
//
// The server opens with a random challenge; the client answers with a challenge of its own and the
// HMAC-SHA256 of both; the server answers with another HMAC of both, or says why not. A proof is of use for
// one connection and one direction only. What follows is neither encrypted nor signed: this keeps out
// strangers and other jobs, not somebody who can change packets on the way.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::rendezvous {

inline constexpr std::string_view kServerGreeting = "lockstp2";  ///< what a server says first
inline constexpr std::size_t kChallengeBytes = 32;
inline constexpr std::size_t kProofBytes = 32;

/// Which side a proof comes from.
enum class Side : char { kClient = 'c', kServer = 's' };

/// How a server answers a proof. A connection that only closes may have been cut by anything.
enum class Welcome : char {
  kTrusted = 't',  ///< its own proof follows
  kRefused = 'r',  ///< a reason() follows; it will be the same the next time
  kLater = 'l'     ///< a reason() follows; another attempt may succeed
};

/// A text for people as it travels behind kRefused and kLater: its length in one byte, and at most 255 more.
LOCKSTEP_API std::string reason(std::string_view text);

/// Random bytes that nobody can foresee.
/// @throws CommError when the system has none
LOCKSTEP_API std::string random_bytes(std::size_t count);

/// That who sends it knows `key` and has seen both challenges.
LOCKSTEP_API std::string proof(std::string_view key, Side side, std::string_view servers_challenge,
                               std::string_view clients_challenge);

/// Whether both are the same, in a time that does not depend on where they differ.
LOCKSTEP_API bool same_secret(std::string_view one, std::string_view other);

}  // namespace lockstep::rendezvous
