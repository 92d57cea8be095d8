// The messages between the test process and the zygote: jobs and their results.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/testing/fork_ranks.h>

namespace lockstep::testing {

// Numbers and texts in one string of bytes, to send them to a copy of this process.

/// A queue of numbers and texts: the first one that was put is taken first.
class Packet {
 public:
  Packet() = default;
  explicit Packet(std::string bytes) : bytes_(std::move(bytes)) {}

  Packet& put(std::int64_t number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
    return *this;
  }
  Packet& put(std::string_view text) {
    put(static_cast<std::int64_t>(text.size()));
    bytes_.append(text);
    return *this;
  }

  /// @throws Error if nothing is left
  std::int64_t take_number() {
    std::int64_t number = 0;
    std::memcpy(&number, take(sizeof(number)).data(), sizeof(number));
    return number;
  }
  /// @throws Error if nothing is left
  std::string take_text() { return std::string(take(static_cast<std::size_t>(take_number()))); }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string_view take(std::size_t size) {
    if (bytes_.size() - next_ < size) throw Error("testing", {.what = "a packet ends too early"});
    next_ += size;
    return std::string_view(bytes_).substr(next_ - size, size);
  }

  std::string bytes_;
  std::size_t next_ = 0;
};

/// One call of fork_ranks().
struct RankJob {
  int ranks = 1;
  std::string name;
  std::string argument;
  ForkRanksOptions options;

  Packet packed() const;
  static RankJob unpacked(Packet packet);
};

/// Why a call fails as a whole.
enum class JobFailure {
  kNone,
  kTimeout,  ///< Timeout
  kOther     ///< Error
};

/// The outcome of a call. Where there is a failure, ranks may be missing.
struct JobReport {
  JobFailure failure = JobFailure::kNone;
  std::string what;  ///< of the failure
  std::string got;   ///< of the failure: which ranks, and where they are
  std::vector<RankResult> ranks = {};

  Packet packed() const;
  static JobReport unpacked(Packet packet);
};

/// The report of a rank at its end.
struct RankReport {
  std::string result;
  std::string error;
  std::vector<std::string> failed_assertions;

  Packet packed() const;
  static RankReport unpacked(Packet packet);
};

// The copy of the test program from which ranks are forked, as seen from the test.

/// Lets the zygote run `job`. Blocks; concurrent calls wait for each other.
/// @throws ConfigError without start_zygote(); Error when the zygote is gone
JobReport run_in_zygote(const RankJob& job);

// One call of fork_ranks() in the zygote: forks the ranks, waits for them, tells how they ended.

/// Blocks until all ranks have ended or the deadline has passed; none is left then. SIGCHLD must be blocked.
/// Never throws: failures are in the report.
JobReport run_job(const RankJob& job, const AssertionCatcher& catcher) noexcept;

}  // namespace lockstep::testing
