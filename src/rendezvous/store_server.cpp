#include "rendezvous/store_server.h"

#include <algorithm>
#include <charconv>

namespace lockstep::rendezvous {

const std::string* KvTable::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Expected<std::int64_t> KvTable::add(const std::string& key, std::int64_t delta) {
  std::int64_t sum = 0;
  if (const auto* value = find(key)) {
    const auto* const end = value->data() + value->size();
    const auto [rest, error] = std::from_chars(value->data(), end, sum);
    if (error != std::errc() || rest != end) return Unexpected{"the value of " + key + " is no number"};
  }
  if (__builtin_add_overflow(sum, delta, &sum)) return Unexpected{"the number of " + key + " is too large"};
  set(key, std::to_string(sum));
  return sum;
}

std::string KvTable::compare_set(const std::string& key, const std::string& expected,
                                 const std::string& desired) {
  const auto* value = find(key);
  const bool matches = value == nullptr ? expected.empty() : *value == expected;
  if (!matches) return value == nullptr ? expected : *value;
  set(key, desired);
  return desired;
}

bool KvTable::has_all(std::span<const std::string> keys) const {
  return std::ranges::all_of(keys, [&](const std::string& key) { return values_.contains(key); });
}

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::int64_t kMostWaitMs = std::int64_t{1000} * 60 * 60 * 24 * 365;

void reply(ServerConnection& client, const KvWriter& answer) { client.send(answer.bytes()); }

constexpr std::size_t kMostKeyBytes = 1 << 16;  // answers that name a key fit into a frame

std::vector<std::string> keys_in(KvReader& question) {
  std::vector<std::string> keys;
  for (auto left = question.number(); left > 0 && !question.has_failed(); --left)
    keys.emplace_back(question.text());
  return keys;
}

}  // namespace

void KvService::on_message(ServerConnection& from, std::string_view payload) {
  if (waiters_.contains(from.id())) return from.give_up();
  KvReader question(payload);
  answer(from, static_cast<KvQuery>(question.kind()), question);
}

void KvService::answer(ServerConnection& client, KvQuery query, KvReader& question) {
  const auto ok = [] { return KvWriter(KvStatus::kOk); };
  const bool asks_about_keys = query == KvQuery::kCheck || query == KvQuery::kWait;
  auto keys = asks_about_keys ? keys_in(question) : std::vector<std::string>();
  const std::string key(asks_about_keys || query == KvQuery::kNumKeys ? "" : question.text());
  const std::string first(query == KvQuery::kSet || query == KvQuery::kCompareSet ? question.text() : "");
  const std::string second(query == KvQuery::kCompareSet ? question.text() : "");
  const bool has_number = query == KvQuery::kGet || query == KvQuery::kAdd || query == KvQuery::kWait;
  const auto number = has_number ? question.number() : 0;
  if (!question.is_sound() || key.size() > kMostKeyBytes) return client.give_up();
  switch (query) {
    case KvQuery::kSet:
      table_.set(key, first);
      reply(client, ok());
      return tell_of(key);
    case KvQuery::kGet:
      return await(client, query, {key}, number);
    case KvQuery::kWait:
      return await(client, query, std::move(keys), number);
    case KvQuery::kAdd: {
      const auto sum = table_.add(key, number);
      reply(client, sum ? ok().number(*sum) : KvWriter(KvStatus::kError).text(sum.error()));
      return tell_of(key);
    }
    case KvQuery::kCompareSet:
      reply(client, ok().text(table_.compare_set(key, first, second)));
      return tell_of(key);
    case KvQuery::kCheck:
      return reply(client, ok().number(table_.has_all(keys) ? 1 : 0));
    case KvQuery::kDelete:
      return reply(client, ok().number(table_.erase(key) ? 1 : 0));
    case KvQuery::kNumKeys:
      return reply(client, ok().number(table_.size()));
  }
  client.give_up();
}

void KvService::await(ServerConnection& client, KvQuery query, std::vector<std::string> keys,
                      std::int64_t patience_ms) {
  const auto patience = milliseconds(std::clamp<std::int64_t>(patience_ms, 0, kMostWaitMs));
  const auto deadline = steady_clock::now() + patience;
  for (const auto& key : keys) awaited_[key].insert(client.id());
  waiters_by_deadline_.emplace(deadline, client.id());
  const auto [waiter, is_new] =
      waiters_.emplace(client.id(), Waiter{&client, query, std::move(keys), deadline});
  if (table_.has_all(waiter->second.keys)) return end_wait(waiter, KvStatus::kOk);
  if (patience_ms <= 0) end_wait(waiter, KvStatus::kTimeout);
}

void KvService::end_wait(Waiters::iterator waiter, KvStatus status) {
  const auto [id, ended] = std::move(*waiter);
  waiters_.erase(waiter);
  waiters_by_deadline_.erase({ended.deadline, id});
  for (const auto& key : ended.keys) {
    const auto found = awaited_.find(key);
    if (found == awaited_.end()) continue;  // a key named twice
    found->second.erase(id);
    if (found->second.empty()) awaited_.erase(found);
  }
  if (ended.client->is_broken()) return;
  KvWriter answer(status);
  if (status == KvStatus::kOk && ended.query == KvQuery::kGet) answer.text(*table_.find(ended.keys.front()));
  reply(*ended.client, answer);
}

void KvService::tell_of(const std::string& key) {
  const auto found = awaited_.find(key);
  if (found == awaited_.end() || table_.find(key) == nullptr) return;
  for (const auto id : std::set<std::uint64_t>(found->second)) {
    const auto waiter = waiters_.find(id);
    if (table_.has_all(waiter->second.keys)) end_wait(waiter, KvStatus::kOk);
  }
}

void KvService::on_closed(const ServerConnection& connection) {
  const auto waiter = waiters_.find(connection.id());
  if (waiter != waiters_.end()) end_wait(waiter, KvStatus::kTimeout);
}

std::optional<Deadline> KvService::next_deadline() const {
  if (waiters_by_deadline_.empty()) return std::nullopt;
  return waiters_by_deadline_.begin()->first;
}

void KvService::on_time() {
  const auto now = steady_clock::now();
  while (!waiters_by_deadline_.empty() && waiters_by_deadline_.begin()->first <= now)
    end_wait(waiters_.find(waiters_by_deadline_.begin()->second), KvStatus::kTimeout);
}

}  // namespace lockstep::rendezvous
