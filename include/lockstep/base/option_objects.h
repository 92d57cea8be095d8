// Lists of objects in options: files and flags name the classes, each with options of its own, as
// LightningCLI writes them: `{class_path: NAME, init_args: {OPTION: VALUE}}`.
#pragma once

#include <any>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_visitor.h>

namespace lockstep {

/// An option that a class has elsewhere, such as in Lightning, or in code alone.
struct OtherOption {
  std::string name;   ///< below init_args
  std::string value;  ///< which is taken, and changes nothing; null is, too
  std::string why;    ///< it is refused with another value: a sentence without its end
};

/// A class that files and flags can name, and how objects of it are made.
struct ObjectClass {
  std::string name;              ///< in files and flags
  std::string unavailable = {};  ///< not empty: the name is refused, for this reason
  std::any options = {};         ///< its options, with their defaults
  std::function<void(OptionVisitor&, std::any& options)> describe = {};  ///< visits them
  /// Makes an object, as its base; what is wrong with the options together is a ConfigError.
  std::function<std::shared_ptr<void>(const std::any& options)> make = {};
  std::vector<OtherOption> other_options = {};  ///< those that `describe` does not name
};

/// The class `name` of objects of `Base`; `make` makes one, a std::shared_ptr, from the described `Options`.
template <class Base, Described Options, class Make>
ObjectClass object_class(std::string name, Make make, std::vector<OtherOption> other_options = {}) {
  return {.name = std::move(name),
          .options = Options{},
          .describe = [](OptionVisitor& visitor,
                         std::any& options) { describe(visitor, std::any_cast<Options&>(options)); },
          .make = [make = std::move(make)](const std::any& options) -> std::shared_ptr<void> {
            const std::shared_ptr<Base> object = make(std::any_cast<const Options&>(options));
            return object;  // which is cast back to Base
          },
          .other_options = std::move(other_options)};
}

/// One item of such a list: what an object is made from.
struct NamedObject {
  std::string class_name = {};  ///< that of an ObjectClass
  std::any options = {};        ///< as ObjectClass::options
};

/// One list of such objects, and the classes that may be named. Borrows both: valid during the visit only.
class LOCKSTEP_API OptionObjects {
 public:
  /// `own_hint` says what to do for a class that is none of `classes`, in a sentence without its end.
  OptionObjects(std::string_view name, std::vector<NamedObject>& objects,
                std::span<const ObjectClass> classes, std::string_view own_hint, std::string_view help);

  /// The key, without what it is within.
  const std::string& name() const { return name_; }
  /// One sentence on what it is.
  const std::string& help() const { return help_; }
  /// What to do for a class that is none of these.
  const std::string& own_hint() const { return own_hint_; }
  /// The list.
  std::vector<NamedObject>& objects() const { return objects_; }
  /// The names of the classes that can be taken.
  std::vector<std::string> class_names() const;

  /// The class that `class_path` means, or null: `NAME`, or with the path of Lightning's module
  /// (`lightning.pytorch.callbacks.NAME`, `pytorch_lightning...`) or `ls::` before it.
  const ObjectClass* find(std::string_view class_path) const;
  /// Visits the options of `object`, whose class must be one of these.
  void describe(OptionVisitor& visitor, NamedObject& object) const;

 private:
  std::string name_;
  std::string help_;
  std::string own_hint_;
  std::vector<NamedObject>& objects_;
  std::span<const ObjectClass> classes_;
};

}  // namespace lockstep
