#include <lockstep/formats/idx.h>

#include "fuzz/target.h"

namespace lockstep::fuzz {
namespace {

using namespace std::string_literals;

void run_idx(std::span<const std::byte> input) {
  const auto array = idx::parse(input);
  if (!array) return expect(!array.error().empty(), "gave no reason");
  auto bytes = idx::item_bytes(array->dtype);
  for (const auto extent : array->shape) bytes *= static_cast<std::size_t>(extent);
  expect(array->bytes.size() == bytes, "gave elements that are not of its shape");
  expect(bytes <= input.size(), "gave more bytes than there are");
}

}  // namespace

Target idx_target() {
  return {.name = "idx",
          .seeds = {"\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x02"s + "abcd",
                    "\0\0\x0d\x01\0\0\0\x01\x3f\x80\0\0"s, "\0\0\x0e\x02\0\0\0\0\0\0\0\x05"s},
          .tokens = {"\0\0\x08\x01"s, "\0\0\x0b\x02"s, "\0\0\0\x02"s, "\xff\xff\xff\xff", "\0\0\0\0"s, "a"},
          .memory_bytes = std::size_t{4} << 20,  // reads in blocks of 1 MiB
          .run = run_idx};
}

}  // namespace lockstep::fuzz
