#include <lockstep/base/error.h>
#include <lockstep/formats/pickle.h>

#include "fuzz/pickle_seeds.h"
#include "fuzz/target.h"

namespace lockstep::fuzz {
namespace {

/// The pickle of `value`; empty when it holds what torch.load would refuse.
std::string written(const pickle::Value& value) {
  try {
    return pickle::write(value);
  } catch (const CheckpointError&) {
    return {};
  }
}

/// What is read can be walked over, which writing does, and comes back the same.
void run_pickle(std::span<const std::byte> input) {
  const auto document = pickle::parse(input);
  if (!document) return expect(!document.error().empty(), "gave no reason");
  const std::string once = written(document->root);
  if (once.empty()) return;
  const auto again = pickle::parse(bytes_of(once));
  expect(again.has_value(), again ? "" : "does not read what it wrote: " + again.error());
  expect(written(again->root) == once, "wrote something else the second time");
}

}  // namespace

Target pickle_target() {
  return {.name = "pickle",
          .seeds = pickle_seeds(),
          .tokens = pickle_tokens(),
          .memory_bytes = std::size_t{64} << 10,
          .memory_per_byte = 512,  // for two values and two texts
          .run = run_pickle};
}

}  // namespace lockstep::fuzz
