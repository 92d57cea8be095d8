// Names of classes for reports.
#pragma once

#include <string>
#include <typeinfo>

#include <c10/util/Type.h>

namespace lockstep::detail {

/// `namespace::NetImpl` -> `Net`: the name that the program uses, also for the class behind a module holder.
inline std::string short_class_name(std::string name) {
  const auto scope = name.rfind("::", name.find('<'));
  if (scope != std::string::npos) name.erase(0, scope + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

template <class T>
std::string class_name(const T& object) {
  return short_class_name(c10::demangle(typeid(object).name()));
}

}  // namespace lockstep::detail
