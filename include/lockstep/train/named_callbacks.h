// Callbacks by the names of their classes, as files and flags give them (--trainer.callbacks).
#pragma once

#include <concepts>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_objects.h>
#include <lockstep/train/hooks.h>

namespace lockstep {

/// The classes that files and flags can name: those of the library, then those that are registered. Valid
/// until the next one is registered. @throws ConfigError once after a registration under a wrong name
LOCKSTEP_API std::span<const ObjectClass> callback_classes();

/// Makes a class known, to be used by files and flags. Call it before run(), in all processes alike. A name
/// that is taken or no word is refused by run(), or by the next Trainer: before, nothing would catch it.
LOCKSTEP_API void register_callback(ObjectClass callback);

/// Makes a callback of the program known under `name`, which files write as `class_path`; a name with dots
/// (`my.module.Pace`) is given as it is. `Own` is made from the described struct `Options`:
///
///     ls::register_callback<Pace, PaceOptions>("Pace");
///     return ls::run(argc, argv, body);
///
/// A wrong name is refused as by the other form.
template <std::derived_from<Callback> Own, Described Options>
void register_callback(std::string name) {
  register_callback(object_class<Callback, Options>(
      std::move(name), [](const Options& options) { return std::make_shared<Own>(options); }));
}

/// New callbacks of what `named` names.
/// @throws ConfigError for a name that no class has, and as the callbacks' constructors
LOCKSTEP_API std::vector<std::shared_ptr<Callback>> make_callbacks(std::span<const NamedObject> named);

}  // namespace lockstep
