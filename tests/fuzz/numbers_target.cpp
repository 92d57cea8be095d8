// The small texts of options and variables that hold numbers and ranges of them.
#include <chrono>

#include <lockstep/base/error.h>
#include <lockstep/base/option_type.h>
#include <lockstep/advice/memory_estimate.h>
#include <lockstep/formats/checkpoint_tools.h>
#include <lockstep/launch/binding.h>

#include "fuzz/target.h"

namespace lockstep::fuzz {
namespace {

void run_numbers(std::span<const std::byte> input) {
  const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  if (const auto processors = parse_processors(text)) expect(!processors->empty(), "gave no processor");
  if (const auto count = parse_parameter_count(text)) expect(*count > 0, "gave no parameter");
  (void)OptionType<std::chrono::milliseconds>::parse(text);
  (void)OptionType<std::int64_t>::parse(text);
  (void)OptionType<double>::parse(text);
  try {
    expect(parse_shard_size(text) > 0, "gave no size");
  } catch (const ConfigError&) {
  }
}

}  // namespace

Target numbers_target() {
  return {.name = "numbers",
          .seeds = {"0,2-5", "124M", "1.5B", "[0,1]", "auto", "250ms", "01:00:30:00", "5GB",
                    "18446744073709551615"},
          .tokens = {"-",
                     ",",
                     "[",
                     "]",
                     ":",
                     ".",
                     "e",
                     "0",
                     "9",
                     "2147483647",
                     "9223372036854775807",
                     "18446744073709551615",
                     "1e308",
                     "nan",
                     "inf",
                     "KB",
                     "TB",
                     "K",
                     "T",
                     "ms",
                     "d"},
          .memory_bytes = std::size_t{2} << 20,
          .memory_per_byte = 64,
          .run = run_numbers};
}

}  // namespace lockstep::fuzz
