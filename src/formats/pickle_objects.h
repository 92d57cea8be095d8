// What the names that a pickle may use make of their arguments.
#pragma once

#include <lockstep/base/expected.h>
#include <lockstep/formats/pickle.h>

namespace lockstep::pickle::detail {

/// What calling `global` with `arguments`, a tuple, gives. The reason for a refusal names neither.
Expected<Value> call(const Global& global, const Value& arguments);

/// The storage that a persistent id describes: ("storage", its type, key, device, number of elements).
/// `globals` is where the name of its type is looked up.
Expected<Storage> storage_of(const Value& id, std::span<const Global> globals);

/// The row of that name, or nullptr.
const Global* find_global(std::span<const Global> globals, std::string_view name);

}  // namespace lockstep::pickle::detail
