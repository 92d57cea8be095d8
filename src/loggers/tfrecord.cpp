#include "loggers/tfrecord.h"

#include <array>
#include <bit>

#include "loggers/little_endian.h"

namespace lockstep::detail {
namespace {

constexpr std::array<std::uint32_t, 256> kTable = [] {
  constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, bits reversed
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kPolynomial : 0);
    table[byte] = rest;
  }
  return table;
}();

// A checksum stored beside what it was made of would weaken one made over both.
std::uint32_t masked(std::uint32_t checksum) { return std::rotr(checksum, 15) + 0xa282ead8; }

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t rest = ~0u;
  for (const char byte : bytes) rest = kTable[(rest ^ static_cast<unsigned char>(byte)) & 0xff] ^ (rest >> 8);
  return ~rest;
}

std::string tfrecord(std::string_view bytes) {
  std::string record;
  append_little_endian(record, std::uint64_t{bytes.size()});
  append_little_endian(record, masked(crc32c(record)));
  record += bytes;
  append_little_endian(record, masked(crc32c(bytes)));
  return record;
}

}  // namespace lockstep::detail
