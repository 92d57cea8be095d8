#include <cstring>

#include <lockstep/formats/safetensors.h>

#include "fuzz/target.h"

namespace lockstep::fuzz {
namespace {

/// A file with that header and so many bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, 'x');
}

void parse_safetensors(std::span<const std::byte> file) {
  const auto contents = safetensors::parse(file);
  if (!contents) return expect(!contents.error().empty(), "gave no reason");
  std::size_t bytes = 0;
  for (const auto& tensor : contents->tensors) bytes += tensor.bytes.size();
  expect(bytes <= file.size(), "gave more bytes than there are");
}

/// `file` with the length of a header that ends with its last brace.
std::string with_fitting_length(std::string file) {
  const auto brace = file.rfind('}');
  const std::uint64_t length = brace == file.npos || brace < 8 ? 0 : brace + 1 - 8;
  std::memcpy(file.data(), &length, 8);
  return file;
}

/// Also with the right length, without which few inputs come as far as the header.
void run_safetensors(std::span<const std::byte> input) {
  parse_safetensors(input);
  if (input.size() < 8) return;
  const std::string file(reinterpret_cast<const char*>(input.data()), input.size());
  parse_safetensors(bytes_of(with_fitting_length(file)));
}

}  // namespace

Target safetensors_target() {
  return {
      .name = "safetensors",
      .seeds = {file_of("{}", 0), file_of(R"({"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})", 8),
                file_of(
                    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},)"
                    R"("b":{"dtype":"U8","shape":[0,3],"data_offsets":[2,2]},)"
                    R"("c":{"dtype":"I64","shape":[1,1,1],"data_offsets":[2,10]}}  )",
                    10)},
      .tokens = {"{",
                 "}",
                 "[",
                 "]",
                 ",",
                 ":",
                 "\"",
                 "\"a\"",
                 "\"dtype\"",
                 "\"F32\"",
                 "\"shape\"",
                 "[2]",
                 "0",
                 "18446744073709551615",
                 "[0,8]",
                 "\"data_offsets\"",
                 "\"__metadata__\"",
                 "1e999",
                 "-1",
                 "null",
                 "\\u0000",
                 "\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}",
                 "\xff",
                 " "},
      .memory_per_byte = 64,
      .run = run_safetensors};
}

}  // namespace lockstep::fuzz
