// The event files of TensorBoard: events, encoded, and TFRecord, their framing.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/loggers/logger.h>

namespace lockstep::detail {

/// When an event happened, and at which step. `wall_time` is in seconds since 1970.
struct EventTime {
  double wall_time = 0;
  std::int64_t step = 0;
};

/// The first event of every file: which format it is in.
LOCKSTEP_API std::string file_version_event(double wall_time);

/// One row. A name that is not in `described` yet is put there and gets the metadata that make it a chart;
/// TensorBoard wants them once per name and file. Values are rounded to float32, as those of PyTorch are.
LOCKSTEP_API std::string scalars_event(const EventTime& time, std::span<const Metric> metrics,
                                       std::set<std::string>& described);

/// The two events by which the table of hyper-parameters gets a row: what there is to compare, and this
/// run's values. `metrics` are the names of its other columns.
LOCKSTEP_API std::vector<std::string> session_start_events(const EventTime& time,
                                                           const HyperParameters& params,
                                                           std::span<const Metric> metrics);

/// How the run of that row ended.
LOCKSTEP_API std::string session_end_event(const EventTime& time, bool success);

/// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4.
LOCKSTEP_API std::uint32_t crc32c(std::string_view bytes);

/// `bytes` as one record.
LOCKSTEP_API std::string tfrecord(std::string_view bytes);

template <std::unsigned_integral Unsigned>
void append_little_endian(std::string& bytes, Unsigned value) {
  for (std::size_t byte = 0; byte < sizeof value; ++byte) {
    bytes += static_cast<char>(value >> (8 * byte) & 0xff);
  }
}

}  // namespace lockstep::detail
