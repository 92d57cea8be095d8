#include <lockstep/comm/store.h>

#include <vector>

#include <lockstep/base/error.h>

#include "comm/c10d.h"
#include "comm/errors.h"
#include "comm/stores.h"
#include "comm/waiting.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// c10d's server hangs up on whoever sends more, and all later calls of that process would fail.
constexpr std::size_t kMaxBytes = 8 << 20;

constexpr const char* kServerGone = "rank 0, which serves the store, may be gone";

void require_short(const std::string& what, const std::string& bytes) {
  if (bytes.size() <= kMaxBytes) return;
  throw ConfigError("comm", {.what = "store: " + what + " is too long",
                             .expected = "at most " + std::to_string(kMaxBytes) + " bytes",
                             .got = std::to_string(bytes.size()) + " bytes",
                             .where = "",
                             .hint = "give it to other ranks by broadcast_bytes() of a Communicator"});
}

// Calls the c10d store; what it throws becomes a CommError.
template <class Call>
auto guarded(const std::string& what, Call call, const std::string& hint = kServerGone) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError("comm", {.what = "store: " + what + " failed: " + detail::plain_text(error),
                             .expected = "",
                             .got = "",
                             .where = "",
                             .hint = hint});
  }
}

}  // namespace

Store::Store(std::shared_ptr<detail::StoreImpl> impl) : impl_(std::move(impl)) {}

void Store::set(const std::string& key, const std::string& value) {
  require_short("a key", key);
  require_short("the value of key " + key, value);
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
  return guarded(
      "add " + key, [&] { return impl_->store->add(key, delta); },
      "the key may hold something else than a number, or " + std::string(kServerGone));
}

// What c10d throws when the time is up differs from store to store.
bool Store::wait(std::span<const std::string> keys, milliseconds timeout) {
  const auto patience = std::max(detail::bounded(timeout), milliseconds(1));  // 0 is for ever there
  const auto deadline = steady_clock::now() + patience;
  return guarded("wait", [&] {
    try {
      impl_->store->wait({keys.begin(), keys.end()}, patience);
      return true;
    } catch (const std::exception&) {
      if (steady_clock::now() < deadline) throw;
      return false;
    }
  });
}

bool Store::check(const std::string& key) {
  return guarded("check " + key, [&] { return impl_->store->check({key}); });
}

Store make_hash_store() {
  return Store(
      std::make_shared<detail::StoreImpl>(detail::StoreImpl{c10::make_intrusive<c10d::HashStore>()}));
}

Store detail::scoped(const Store& store, const std::string& prefix) {
  auto scope = c10::make_intrusive<c10d::PrefixStore>(prefix, store.impl().store->clone());
  return Store(std::make_shared<StoreImpl>(StoreImpl{std::move(scope), store.impl().port}));
}

c10::intrusive_ptr<c10d::Store> detail::without_scopes(const Store& store) {
  auto inner = store.impl().store;
  while (auto* scope = dynamic_cast<c10d::PrefixStore*>(inner.get())) inner = scope->getUnderlyingStore();
  return inner;
}

void detail::limit_answers(const Store& store, milliseconds time) {
  const bool has_server = store.impl().port != 0;
  if (has_server) without_scopes(store)->setTimeout(bounded(time));
}

int store_port(const Store& store) { return store.impl().port; }

}  // namespace lockstep
