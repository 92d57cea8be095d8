// TFRecord, the framing of TensorBoard's event files: length, checksum of it, bytes, checksum of them.
// https://www.tensorflow.org/tutorials/load_data/tfrecord
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4.
LOCKSTEP_API std::uint32_t crc32c(std::string_view bytes);

/// `bytes` as one record.
LOCKSTEP_API std::string tfrecord(std::string_view bytes);

}  // namespace lockstep::detail
