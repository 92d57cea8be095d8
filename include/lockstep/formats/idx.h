// IDX files, plain or compressed with gzip: the format of MNIST.
// Source: Yann LeCun, "The MNIST database of handwritten digits", file formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

namespace lockstep::idx {

/// Types of elements, by the code that files give them.
enum class Dtype : std::uint8_t {
  kUint8 = 0x08,    ///< unsigned, 8 bits
  kInt8 = 0x09,     ///< signed, 8 bits
  kInt16 = 0x0B,    ///< signed, 16 bits
  kInt32 = 0x0C,    ///< signed, 32 bits
  kFloat32 = 0x0D,  ///< floating point, 32 bits
  kFloat64 = 0x0E   ///< floating point, 64 bits
};

/// Bytes of one element.
LOCKSTEP_API std::size_t item_bytes(Dtype dtype);

/// What a file holds.
struct Array {
  Dtype dtype = Dtype::kUint8;      ///< what an element is
  std::vector<std::int64_t> shape;  ///< one dimension or more
  std::vector<std::byte> bytes;  ///< the elements in row-major order, each as this machine orders its bytes
};

/// Reads the bytes of a whole, uncompressed file. Strict: no byte may be missing or left over. Never throws
/// for bad input; the reason says what is wrong.
LOCKSTEP_API Expected<Array> parse(std::span<const std::byte> file);

/// Reads `path`; compression is told by the content. Takes no more memory than the file has elements,
/// whatever its head says. Blocking.
/// @throws DataError naming the file: missing, unreadable, no IDX file, cut short, with bytes left over
LOCKSTEP_API Array read(const std::filesystem::path& path);

}  // namespace lockstep::idx
