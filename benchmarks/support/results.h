// Where a measuring program puts its numbers: JSON lines in a file, since stdout belongs to progress bars.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

namespace bench {

/// Nanoseconds on the clock that all processes of this machine share (CLOCK_MONOTONIC).
inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Appends to `path`, which several ranks may do.
class Results {
 public:
  explicit Results(std::string path) : path_(std::move(path)) {}

  /// What one repetition of `name` took.
  void add(const std::string& name, double ns) const { append(name, "ns", std::to_string(ns)); }

  /// How many bytes `name` took on this rank.
  void add_bytes(const std::string& name, std::int64_t bytes) const {
    append(name, "bytes", std::to_string(bytes));
  }

  /// When `name` was reached; the driver knows when the program was started.
  void add_moment(const std::string& name, std::int64_t at_ns) const {
    append(name, "at_ns", std::to_string(at_ns));
  }

  /// How long processors have worked for `name` in this process; the driver adds those of all up.
  void add_processor_time(const std::string& name, double ns) const {
    append(name, "processor_ns", std::to_string(ns));
  }

 private:
  void append(const std::string& name, const char* key, const std::string& value) const {
    std::ofstream(path_, std::ios::app) << "{\"case\": \"" + name + "\", \"" + key + "\": " + value + "}\n";
  }

  std::string path_;
};

}  // namespace bench
