#include "comm/join/kv_store.h"

#include <string_view>

#include <lockstep/base/error.h>

#include "comm/timeouts.h"

namespace lockstep::detail {
namespace {

using Bytes = std::vector<std::uint8_t>;
using std::chrono::milliseconds;

std::string_view view(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[noreturn]] void miss(const std::string& key) {
  throw Timeout("comm", {.what = "store: a key was not set in time", .got = key});
}

}  // namespace

KvStore::KvStore(std::shared_ptr<KvConnection> connection, std::string scope, milliseconds timeout)
    : c10d::Store(timeout), connection_(std::move(connection)), scope_(std::move(scope)) {}

c10::intrusive_ptr<c10d::Store> KvStore::clone() {
  return c10::make_intrusive<KvStore>(connection_, scope_, timeout_);
}

void KvStore::setTimeout(const milliseconds& timeout) {
  c10d::Store::setTimeout(timeout);
  connection_->client().set_patience(bounded(timeout));
}

std::vector<std::string> KvStore::scoped(const std::vector<std::string>& keys) const {
  std::vector<std::string> all;
  for (const auto& key : keys) all.push_back(scoped(key));
  return all;
}

void KvStore::set(const std::string& key, const Bytes& value) {
  connection_->client().set(scoped(key), view(value));
}

Bytes KvStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  const auto value = connection_->client().compare_set(scoped(key), view(expected), view(desired));
  return {value.begin(), value.end()};
}

Bytes KvStore::get(const std::string& key) {
  const auto value = connection_->client().get(scoped(key), bounded(timeout_));
  if (!value) miss(key);
  return {value->begin(), value->end()};
}

std::int64_t KvStore::add(const std::string& key, std::int64_t value) {
  return connection_->client().add(scoped(key), value);
}

bool KvStore::deleteKey(const std::string& key) { return connection_->client().erase(scoped(key)); }

bool KvStore::check(const std::vector<std::string>& keys) {
  return connection_->client().check(scoped(keys));
}

std::int64_t KvStore::getNumKeys() { return connection_->client().num_keys(); }

void KvStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void KvStore::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  if (!connection_->client().wait(scoped(keys), bounded(timeout))) miss(keys.front());
}

}  // namespace lockstep::detail
