// What clients and servers send each other: messages on a stream of bytes, how both sides prove that they
// know a key, and questions to the key-value service with its answers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

namespace lockstep::rendezvous {

/// The longest payload, in bytes.
inline constexpr std::size_t kMostFrameBytes = std::size_t{16} << 20;

/// `payload` as it is sent: behind its length.
/// @throws CommError when it is too long
LOCKSTEP_API std::string to_frame(std::string_view payload);

/// Cuts the bytes that arrive into messages.
class LOCKSTEP_API FrameBuffer {
 public:
  void append(std::string_view bytes) { bytes_ += bytes; }

  /// Removes the next payload; nothing while it is not complete.
  /// @returns an error when the other side announces more than kMostFrameBytes
  Expected<std::optional<std::string>> next();

 private:
  std::string bytes_;
  std::size_t begin_ = 0;  ///< of the bytes that were not taken yet
};

inline constexpr std::string_view kServerGreeting = "lockstp2";  ///< what a server says first
inline constexpr std::size_t kChallengeBytes = 32;
inline constexpr std::size_t kProofBytes = 32;

/// Which side a proof comes from.
enum class Side : char { kClient = 'c', kServer = 's' };

/// How a server answers a proof. It always answers, since a connection that only closes may have been cut by
/// anything.
enum class Welcome : char {
  kTrusted = 't',  ///< its own proof follows
  kRefused = 'r',  ///< a reason() follows; further attempts will be refused, too
  kLater = 'l'     ///< a reason() follows; another attempt may succeed
};

/// A text for users as it is sent after kRefused and kLater: its length in one byte, and at most 255 bytes.
LOCKSTEP_API std::string reason(std::string_view text);

/// Cryptographically random bytes.
/// @throws CommError when the system has none
LOCKSTEP_API std::string random_bytes(std::size_t count);

/// The proof that its sender knows `key` and has seen both challenges.
LOCKSTEP_API std::string proof(std::string_view key, Side side, std::string_view servers_challenge,
                               std::string_view clients_challenge);

/// Whether both are equal, in a time that does not depend on where they differ.
LOCKSTEP_API bool same_secret(std::string_view one, std::string_view other);

inline constexpr char kKvLetter = 'K';  ///< of frames for the key-value service

/// The question of a client. The comments have the arguments that follow in brackets, and the content of a
/// kOk answer.
enum class KvQuery : char {
  kSet = 1,         ///< [key, value] -
  kGet = 2,         ///< [key, milliseconds] its value, once it is set
  kAdd = 3,         ///< [key, number] the sum
  kCompareSet = 4,  ///< [key, expected, desired] the value after
  kCheck = 5,       ///< [number of keys, keys] 1 if all are set, else 0
  kWait = 6,        ///< [number of keys, keys, milliseconds] -, once all are set
  kDelete = 7,      ///< [key] 1 if it was set, else 0
  kNumKeys = 8,     ///< [] the number of keys
};

/// How an answer begins.
enum class KvStatus : char { kOk = 0, kTimeout = 1, kError = 2 /* [text] */ };

/// Puts a message together.
class LOCKSTEP_API KvWriter {
 public:
  template <class Kind>
  explicit KvWriter(Kind kind) : bytes_(1, static_cast<char>(kind)) {}

  KvWriter& number(std::int64_t value);
  KvWriter& text(std::string_view value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Takes a message apart. When a message ends too early, missing values are zeros and empty texts, and
/// is_sound() is false.
class LOCKSTEP_API KvReader {
 public:
  explicit KvReader(std::string_view bytes) : rest_(bytes) {}

  char kind();
  std::int64_t number();
  std::string_view text();
  /// Whether the message contained exactly the values that were read.
  bool is_sound() const { return is_sound_ && rest_.empty(); }
  /// Whether a value was missing so far.
  bool has_failed() const { return !is_sound_; }

 private:
  std::string_view take(std::size_t bytes);

  std::string_view rest_;
  bool is_sound_ = true;
};

}  // namespace lockstep::rendezvous
