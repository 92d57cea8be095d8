// Questions to the key-value service and its answers, as bytes. The machines of a job have the same byte
// order: numbers are sent as they lie in memory, texts after their length.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

namespace lockstep::rendezvous {

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
