#include <lockstep/comm/store.h>

#include <lockstep/base/error.h>

#include "comm/c10d.h"
#include "comm/errors.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace lockstep {
namespace {

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

std::string Store::get(const std::string& key, std::chrono::milliseconds timeout) {
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

bool Store::wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) {
  return guarded("wait", [&] {
    try {
      // c10d reads a timeout of 0 as "for ever".
      impl_->store->wait({keys.begin(), keys.end()}, std::max(timeout, std::chrono::milliseconds(1)));
      return true;
    } catch (const std::exception& error) {
      if (detail::says_timeout(error.what())) return false;
      throw;
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

int store_port(const Store& store) { return store.impl().port; }

}  // namespace lockstep
