#include <lockstep/data/data_position.h>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

std::int64_t count(const StateTree& state, std::string_view name) {
  const auto value = state.get<std::int64_t>(name);
  if (value >= 0) return value;
  throw CheckpointError(
      "data",
      {.what = "data position: " + std::string(name), .expected = ">= 0", .got = std::to_string(value)});
}

}  // namespace

StateTree state_of(const DataPosition& position) {
  StateTree state;
  state.set("epoch", position.epoch);
  state.set("batches", position.batches);
  return state;
}

void load_state(DataPosition& position, const StateTree& state) {
  position = {.epoch = count(state, "epoch"), .batches = count(state, "batches")};
}

}  // namespace lockstep
