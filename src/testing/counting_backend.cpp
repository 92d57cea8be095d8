#include <lockstep/testing/counting_backend.h>

#include <mutex>

#include "testing/wrapped_group.h"

namespace lockstep::testing {
namespace {

// What is gathered is counted once it is whole, what is scattered before it is cut.
std::uint64_t bytes_of(const detail::Collective& collective) {
  const auto size = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.nbytes() : 0; };
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

}  // namespace lockstep::testing
