#include <lockstep/base/option_objects.h>

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

// What may stand before the name of a class of Lightning's, or of ours.
constexpr std::array<std::string_view, 2> kModules{"lightning.", "pytorch_lightning."};
constexpr std::array<std::string_view, 2> kNamespaces{"ls::", "lockstep::"};

std::string_view without_module(std::string_view class_path) {
  for (const auto space : kNamespaces) {
    if (class_path.starts_with(space)) return class_path.substr(space.size());
  }
  const bool is_lightnings =
      std::ranges::any_of(kModules, [&](std::string_view module) { return class_path.starts_with(module); });
  return is_lightnings ? class_path.substr(class_path.rfind('.') + 1) : class_path;
}

}  // namespace

OptionObjects::OptionObjects(std::string_view name, std::vector<NamedObject>& objects,
                             std::span<const ObjectClass> classes, std::string_view own_hint,
                             std::string_view help)
    : name_(name), help_(help), own_hint_(own_hint), objects_(objects), classes_(classes) {}

std::vector<std::string> OptionObjects::class_names() const {
  std::vector<std::string> names;
  for (const auto& one : classes_) {
    if (one.unavailable.empty()) names.push_back(one.name);
  }
  return names;
}

const ObjectClass* OptionObjects::find(std::string_view class_path) const {
  for (const auto name : {class_path, without_module(class_path)}) {
    const auto found = std::ranges::find(classes_, name, &ObjectClass::name);
    if (found != classes_.end()) return &*found;
  }
  return nullptr;
}

void OptionObjects::describe(OptionVisitor& visitor, NamedObject& object) const {
  if (const auto* one = find(object.class_name)) one->describe(visitor, object.options);
}

void OptionVisitor::objects(std::string_view name, std::vector<NamedObject>& objects,
                            std::span<const ObjectClass> classes, std::string_view own_hint,
                            std::string_view help) {
  OptionObjects list(name, objects, classes, own_hint, help);
  visit_objects(list);
}

}  // namespace lockstep
