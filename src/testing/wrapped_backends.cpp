// Backends for tests that wrap the group of a Communicator: one counts its calls, one lets some of them fail.
#include <memory>
#include <mutex>
#include <thread>

#include <lockstep/base/error.h>
#include <lockstep/testing/wrapped_backends.h>

#include "comm/group/group.h"

namespace lockstep::testing {

/// A group that forwards everything to another one.
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
  /// The inner group counts subgroups, since it may have been wrapped before.
  int next_subgroup() override { return inner_->next_subgroup(); }
  /// Not wrapped, unless a derived class does so.
  std::shared_ptr<detail::Group> make_subgroup(std::span<const int> members, int number) override {
    return inner_->make_subgroup(members, number);
  }
  void close() override { inner_->close(); }

 private:
  std::shared_ptr<detail::Group> inner_;
};

namespace {

// The bytes of a collective: of a gather its output, of a scatter its input.
std::uint64_t bytes_of(const detail::Collective& collective) {
  const auto size = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.nbytes() : 0; };
  if (collective.kind == detail::CollectiveKind::kAllReduceList)
    return static_cast<std::uint64_t>(detail::bytes_in(collective.outputs));
  return std::max(size(collective.output), size(collective.input));
}

bool matches(const CountedCall& call, std::string_view name) {
  return !call.is_mark && (name.empty() || call.name == name);
}

}  // namespace

struct CountingBackend::Log {
  mutable std::mutex mutex;
  std::vector<CountedCall> calls;

  void add(CountedCall call) {
    call.issued_at = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex);
    calls.push_back(std::move(call));
  }

  std::vector<CountedCall> copy() const {
    const std::lock_guard lock(mutex);
    return calls;
  }
};

class CountingBackend::Group final : public WrappedGroup {
 public:
  Group(std::shared_ptr<detail::Group> inner, std::shared_ptr<Log> log)
      : WrappedGroup(std::move(inner)), log_(std::move(log)) {}

  void run(const detail::Collective& collective) override {
    add(collective, false);
    WrappedGroup::run(collective);
  }
  std::shared_ptr<detail::Pending> start(const detail::Collective& collective) override {
    add(collective, true);
    return WrappedGroup::start(collective);
  }
  std::shared_ptr<detail::Group> make_subgroup(std::span<const int> members, int number) override {
    return std::make_shared<Group>(WrappedGroup::make_subgroup(members, number), log_);
  }

 private:
  void add(const detail::Collective& collective, bool is_async) {
    log_->add({.name = name_of(collective.kind), .bytes = bytes_of(collective), .is_async = is_async});
  }

  std::shared_ptr<Log> log_;
};

CountingBackend::CountingBackend(const Communicator& comm)
    : log_(std::make_shared<Log>()), communicator_(std::make_shared<Group>(comm.group(), log_)) {}

CountingBackend::~CountingBackend() = default;

Communicator CountingBackend::communicator() const { return communicator_; }

void CountingBackend::mark(std::string name) { log_->add({.name = std::move(name), .is_mark = true}); }

std::vector<CountedCall> CountingBackend::calls() const { return log_->copy(); }

std::size_t CountingBackend::count(std::string_view name) const {
  std::size_t number = 0;
  for (const auto& call : calls()) number += matches(call, name);
  return number;
}

std::uint64_t CountingBackend::bytes(std::string_view name) const {
  std::uint64_t sum = 0;
  for (const auto& call : calls()) sum += matches(call, name) ? call.bytes : 0;
  return sum;
}

void CountingBackend::clear() {
  const std::lock_guard lock(log_->mutex);
  log_->calls.clear();
}

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
