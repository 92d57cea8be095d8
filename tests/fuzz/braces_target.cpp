#include <lockstep/formats/brace_expansion.h>

#include "fuzz/target.h"

namespace lockstep::fuzz {
namespace {

constexpr std::size_t kMaxNames = 200;

void run_braces(std::span<const std::byte> input) {
  const std::string_view pattern(reinterpret_cast<const char*>(input.data()), input.size());
  const auto names = expand_braces(pattern, kMaxNames);
  if (!names) return expect(!names.error().empty(), "gave no reason");
  expect(!names->empty() && names->size() <= kMaxNames, "gave too many names or none");
}

}  // namespace

Target braces_target() {
  return {.name = "braces",
          .seeds = {"data-{000..099}.tar", "{a,b{1..3},c}x{08..11..2}", "plain", "{{-1..1},{x}}"},
          .tokens = {"{", "}", ",", "..", "-", "0", "01", "9", "2147483647", "-2147483648", "a", "{a,b}"},
          .memory_bytes = std::size_t{1} << 20,
          .memory_per_byte = 256,
          .run = run_braces};
}

}  // namespace lockstep::fuzz
