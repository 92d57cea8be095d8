#include <array>

#include <lockstep/formats/token_file.h>

#include "fuzz/target.h"

namespace lockstep::fuzz {
namespace {

using namespace std::string_literals;

std::string seed(std::array<std::int32_t, 3> numbers, std::size_t token_bytes) {
  std::string file(reinterpret_cast<const char*>(numbers.data()), sizeof numbers);
  file.resize(1024);
  return file + std::string(token_bytes, 't');
}

void run_tokens(std::span<const std::byte> input) {
  for (const auto dtype : {TokenDtype::kUint16, TokenDtype::kUint32}) {
    const auto layout = token_layout(input, dtype);
    if (!layout) {
      expect(!layout.error().empty(), "gave no reason");
      continue;
    }
    const std::size_t bytes =
        static_cast<std::size_t>(layout->count) * (dtype == TokenDtype::kUint16 ? 2 : 4);
    expect(layout->dtype == dtype && layout->offset + bytes == input.size(),
           "gave other bytes than the file's");
  }
}

}  // namespace

Target tokens_target() {
  return {.name = "tokens",
          .seeds = {seed({20240520, 1, 2}, 4), seed({20240801, 7, 2}, 8), "abcdefgh"},
          .tokens = {"\x58\xd8\x34\x01"s, "\xff\xff\xff\xff"s, "\x01\0\0\0"s, "\0\0"s},
          .run = run_tokens};
}

}  // namespace lockstep::fuzz
