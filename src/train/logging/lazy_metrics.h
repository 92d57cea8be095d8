// Metrics some of which are still on a device.
#pragma once

#include <map>
#include <string>
#include <utility>

#include <lockstep/device/scalar.h>
#include <lockstep/train/train_context.h>

namespace lockstep::detail {

/// Values by name, read from the device when somebody looks at them.
class LazyMetrics {
 public:
  LazyMetrics() = default;
  LazyMetrics(Metrics known) : known_(std::move(known)) {}

  void set(const std::string& name, const Scalar& value) {
    if (value.is_on_device()) {
      unread_.insert_or_assign(name, value);
      return;
    }
    known_.insert_or_assign(name, value.value());
    if (!unread_.empty()) unread_.erase(name);
  }

  const Metrics& read() const {
    for (const auto& [name, value] : unread_) known_.insert_or_assign(name, value.value());
    unread_.clear();
    return known_;
  }

  double at(const std::string& name) const { return read().at(name); }
  bool operator==(const Metrics& values) const { return read() == values; }

 private:
  mutable Metrics known_;
  mutable std::map<std::string, Scalar> unread_;  // newer than what known_ has under the same name
};

}  // namespace lockstep::detail
