#include <lockstep/testing/faulty_backend.h>

#include <thread>

#include <lockstep/base/error.h>

#include "testing/wrapped_group.h"

namespace lockstep::testing {
namespace {

class FailedPending final : public detail::Pending {
 public:
  explicit FailedPending(CommError error) : error_(std::move(error)) {}
  void wait() override { throw error_; }
  bool is_completed() const override { return true; }

 private:
  CommError error_;
};

}  // namespace

class FaultyBackend::Group final : public WrappedGroup {
 public:
  Group(std::shared_ptr<detail::Group> inner, CommFault fault)
      : WrappedGroup(std::move(inner)), fault_(std::move(fault)) {}

  void run(const detail::Collective& collective) override {
    if (is_due(collective)) throw error(collective);
    WrappedGroup::run(collective);
  }
  std::shared_ptr<detail::Pending> start(const detail::Collective& collective) override {
    if (is_due(collective)) return std::make_shared<FailedPending>(error(collective));
    return WrappedGroup::start(collective);
  }

 private:
  // Whether this one fails; delays it if it is the one. A rank issues its collectives one at a time.
  bool is_due(const detail::Collective& collective) {
    const bool counts = fault_.collective.empty() || fault_.collective == name_of(collective.kind);
    if (!counts || ++count_ != fault_.nth) return false;
    std::this_thread::sleep_for(fault_.delay);
    return fault_.fails;
  }

  CommError error(const detail::Collective& collective) const {
    return CommError("testing", {.what = std::string(name_of(collective.kind)) + " fails by request",
                                 .where = "rank " + std::to_string(identity().rank)});
  }

  CommFault fault_;
  std::uint64_t count_ = 0;
};

FaultyBackend::FaultyBackend(const Communicator& comm, CommFault fault)
    : communicator_(std::make_shared<Group>(comm.group(), std::move(fault))) {}

}  // namespace lockstep::testing
