// What the names that a pickle may use make of their arguments.
#pragma once

#include <optional>
#include <string>

#include <lockstep/base/expected.h>
#include <lockstep/formats/pickle.h>

namespace lockstep::pickle::detail {

/// What calling `global` with `arguments`, a tuple, gives: Foreign where an argument is that makes it impossible, or
/// another function of `globals` that is named in them. The reason for a refusal names neither.
Expected<Value> call(const Global& global, const Value& arguments, std::span<const Global> globals);

/// What a name stands for, or what is made by calling it, that is not read; `name` may come from anywhere.
std::string foreign_name(std::string_view name);
/// "name(...)", or "name(class...)" where the first argument is Foreign.
std::string foreign_call(std::string_view name, const Value& arguments);

/// The integer of those bytes, the lowest first, with a sign; Foreign when it needs more than 64 bits.
Value integer_of(std::span<const std::byte> bytes);

/// What a persistent id describes that names a type of storage which is not read; nothing for others.
std::optional<std::string> foreign_storage(const Value& id);

/// The storage that a persistent id describes: ("storage", its type, key, device, number of elements).
/// `globals` is where the name of its type is looked up.
Expected<Storage> storage_of(const Value& id, std::span<const Global> globals);

/// The row of that name, or nullptr.
const Global* find_global(std::span<const Global> globals, std::string_view name);

}  // namespace lockstep::pickle::detail
