// A group that hands everything on to another one.
#pragma once

#include <memory>

#include "comm/group/group.h"

namespace lockstep::testing {

class WrappedGroup : public detail::Group {
 public:
  explicit WrappedGroup(std::shared_ptr<detail::Group> inner)
      : Group(inner->identity(), inner->devices()), inner_(std::move(inner)) {}

  std::string backend() const override { return inner_->backend(); }
  std::chrono::milliseconds timeout() const override { return inner_->timeout(); }
  std::uint64_t bytes_sent() const override { return inner_->bytes_sent(); }
  std::string activity() const override { return inner_->activity(); }
  void run(const detail::Collective& collective) override { inner_->run(collective); }
  std::shared_ptr<detail::Pending> start(const detail::Collective& collective) override {
    return inner_->start(collective);
  }
  /// The inner group counts: others may have wrapped it before.
  int next_subgroup() override { return inner_->next_subgroup(); }
  /// Not wrapped, unless who derives does so.
  std::shared_ptr<detail::Group> make_subgroup(std::span<const int> members, int number) override {
    return inner_->make_subgroup(members, number);
  }
  void close() override { inner_->close(); }

 private:
  std::shared_ptr<detail::Group> inner_;
};

}  // namespace lockstep::testing
