// Reads and writes traces event by event, in constant memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>

#include <lockstep/base/atomic_file.h>

namespace lockstep::detail {

/// Calls `take` for each event of `file`, which is in Chrome's format, and keeps none; returns the rest of
/// the file, an object. Blocking. @throws DataError when it is no trace; IoError when it cannot be read
nlohmann::json read_trace(const std::filesystem::path& file,
                          const std::function<void(const nlohmann::json&)>& take);

/// @throws DataError: `file` is no trace, because of `got`
[[noreturn]] void refuse_trace(const std::filesystem::path& file, const std::string& got);

/// Nanoseconds as the microseconds of the format, exactly: `12.345`.
std::string trace_time(std::int64_t ns);

/// `text` as a JSON string; bytes that are no UTF-8 become replacement characters.
std::string json_string(std::string_view text);

/// One JSON object with `traceEvents`. Holds no more than 64 KiB of it; finish() must come last.
class TraceWriter {
 public:
  explicit TraceWriter(FileWriter& file);

  /// Adds one event, a JSON object. @throws IoError
  void add(std::string_view event);
  /// A name for process `pid`, and its place in the order of processes.
  void add_process(int pid, std::string_view name);
  /// A name for thread `tid` of process `pid`.
  void add_thread(int pid, int tid, std::string_view name);
  /// Ends the file with `about`, facts that viewers show and ignore. @throws IoError
  void finish(const nlohmann::json& about);

 private:
  void flush();

  FileWriter& file_;
  std::string buffer_;
  bool is_first_ = true;
};

}  // namespace lockstep::detail
