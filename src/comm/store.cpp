#include <lockstep/comm/store.h>

#include <thread>
#include <vector>

#include <lockstep/base/error.h>

#include "comm/c10d.h"
#include "comm/errors.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kLongestPause = milliseconds(20);

// Calls the c10d store; what it throws becomes a CommError.
template <class Call>
auto guarded(const std::string& what, Call call) {
  try {
    return call();
  } catch (const std::exception& error) {
    throw CommError("comm", {.what = "store: " + what + " failed: " + detail::plain_text(error),
                             .expected = "",
                             .got = "",
                             .where = "",
                             .hint = "rank 0, which serves the store, may be gone"});
  }
}

}  // namespace

Store::Store(std::shared_ptr<detail::StoreImpl> impl) : impl_(std::move(impl)) {}

void Store::set(const std::string& key, const std::string& value) {
  guarded("set " + key, [&] { impl_->store->set(key, value); });
}

std::string Store::get(const std::string& key, milliseconds timeout) {
  if (!wait(std::span(&key, 1), timeout)) {
    throw Timeout("comm", {.what = "store: key " + key + " was not set within " +
                                   std::to_string(timeout.count()) + " ms",
                           .expected = "",
                           .got = "",
                           .where = "",
                           .hint = ""});
  }
  return guarded("get " + key, [&] { return impl_->store->get_to_str(key); });
}

std::int64_t Store::add(const std::string& key, std::int64_t delta) {
  return guarded("add " + key, [&] { return impl_->store->add(key, delta); });
}

// By looking again and again: c10d's own wait prints warnings when its time is up.
bool Store::wait(std::span<const std::string> keys, milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  const std::vector<std::string> wanted(keys.begin(), keys.end());
  for (auto pause = milliseconds(1);; pause = std::min(2 * pause, kLongestPause)) {
    if (guarded("wait", [&] { return impl_->store->check(wanted); })) return true;
    if (steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_until(std::min(deadline, steady_clock::now() + pause));
  }
}

bool Store::check(const std::string& key) {
  return guarded("check " + key, [&] { return impl_->store->check({key}); });
}

Store make_hash_store() {
  return Store(
      std::make_shared<detail::StoreImpl>(detail::StoreImpl{c10::make_intrusive<c10d::HashStore>()}));
}

Store detail::scoped(const Store& store, const std::string& prefix) {
  auto scope = c10::make_intrusive<c10d::PrefixStore>(prefix, store.impl().store);
  return Store(std::make_shared<StoreImpl>(StoreImpl{std::move(scope), store.impl().port}));
}

int store_port(const Store& store) { return store.impl().port; }

}  // namespace lockstep
