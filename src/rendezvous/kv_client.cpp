#include "rendezvous/kv_client.h"

#include <algorithm>
#include <thread>

#include <lockstep/base/error.h>

namespace lockstep::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kAttempt = milliseconds(2000);
constexpr auto kMostWait = milliseconds(std::int64_t{1000} * 60 * 60 * 24 * 365);

[[noreturn]] void refuse(const TcpEndpoint& server, const std::string& why) {
  throw CommError("rendezvous", {.what = "the store at " + server.text() + " cannot be used",
                                 .got = why,
                                 .hint = "it is served by the launcher of the job"});
}

KvWriter about_keys(KvQuery query, std::span<const std::string> keys) {
  KvWriter question(query);
  question.number(static_cast<std::int64_t>(keys.size()));
  for (const auto& key : keys) question.text(key);
  return question;
}

}  // namespace

KvClient::KvClient(TcpEndpoint server, std::string key, Milliseconds patience)
    : server_(std::move(server)), key_(std::move(key)), patience_(patience) {
  idle_.push_back(take_link(steady_clock::now() + std::min(patience, kMostWait)));
}

FrameLink KvClient::take_link(Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    while (!idle_.empty()) {
      auto link = std::move(idle_.back());
      idle_.pop_back();
      if (link.is_open()) return link;
    }
  }
  for (auto pause = milliseconds(5);; pause = std::min(2 * pause, milliseconds(200))) {
    auto link = FrameLink::connect(server_, key_, std::min(deadline, steady_clock::now() + kAttempt));
    if (link) return std::move(*link);
    if (link.error().is_final) refuse(server_, link.error().text);
    if (steady_clock::now() + pause >= deadline)
      throw Timeout("rendezvous", {.what = "the store at " + server_.text() + " cannot be reached",
                                   .got = link.error().text,
                                   .hint = "it is served by the launcher of the job"});
    std::this_thread::sleep_for(pause);
  }
}

// A link with a failed exchange is dropped, since the answer may still arrive.
std::string KvClient::exchange(const KvWriter& question, Milliseconds wait) {
  const auto deadline =
      steady_clock::now() + std::min(wait, kMostWait) + std::min(patience_.load(), kMostWait);
  auto link = take_link(deadline);
  if (const auto sent = link.send(kKvLetter + question.bytes(), deadline); !sent)
    refuse(server_, sent.error());
  auto answer = link.receive(deadline);
  if (!answer) refuse(server_, answer.error());
  if (!*answer) give_up();
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(link));
  return std::move(**answer);
}

void KvClient::give_up() const {
  throw Timeout("rendezvous",
                {.what = "store: no answer from " + server_.text(),
                 .hint = "the launcher that serves it is stopped, or its host cannot be reached"});
}

// The answer after its status; empty after kTimeout.
KvReader KvClient::ask(std::string& answer, const KvWriter& question, Milliseconds wait) {
  answer = exchange(question, wait);
  KvReader reader(answer);
  if (static_cast<KvStatus>(reader.kind()) == KvStatus::kError) refuse(server_, std::string(reader.text()));
  return reader;
}

void KvClient::set(const std::string& key, std::string_view value) {
  exchange(KvWriter(KvQuery::kSet).text(key).text(value), {});
}

std::optional<std::string> KvClient::get(const std::string& key, Milliseconds timeout) {
  const auto answer = exchange(KvWriter(KvQuery::kGet).text(key).number(timeout.count()), timeout);
  KvReader reader(answer);
  if (static_cast<KvStatus>(reader.kind()) != KvStatus::kOk) return std::nullopt;
  return std::string(reader.text());
}

std::int64_t KvClient::add(const std::string& key, std::int64_t delta) {
  std::string answer;
  return ask(answer, KvWriter(KvQuery::kAdd).text(key).number(delta), {}).number();
}

std::string KvClient::compare_set(const std::string& key, std::string_view expected,
                                  std::string_view desired) {
  std::string answer;
  const auto question = KvWriter(KvQuery::kCompareSet).text(key).text(expected).text(desired);
  return std::string(ask(answer, question, {}).text());
}

bool KvClient::check(std::span<const std::string> keys) {
  std::string answer;
  return ask(answer, about_keys(KvQuery::kCheck, keys), {}).number() == 1;
}

bool KvClient::wait(std::span<const std::string> keys, Milliseconds timeout) {
  const auto answer = exchange(about_keys(KvQuery::kWait, keys).number(timeout.count()), timeout);
  return static_cast<KvStatus>(KvReader(answer).kind()) == KvStatus::kOk;
}

bool KvClient::erase(const std::string& key) {
  std::string answer;
  return ask(answer, KvWriter(KvQuery::kDelete).text(key), {}).number() == 1;
}

std::int64_t KvClient::num_keys() {
  std::string answer;
  return ask(answer, KvWriter(KvQuery::kNumKeys), {}).number();
}

void KvClient::close_copies() {
  for (auto& link : idle_) link.close();
}

}  // namespace lockstep::rendezvous
