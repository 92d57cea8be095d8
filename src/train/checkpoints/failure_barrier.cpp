#include "train/checkpoints/failure_barrier.h"

#include <vector>

#include <lockstep/base/error.h>

#include "comm/stores.h"

namespace lockstep::detail {
namespace {

using std::chrono::milliseconds;

constexpr const char* kCome = "come";
constexpr const char* kDecisions = "decisions";
constexpr const char* kWord = "word";
constexpr const char* kComplete = "complete";
constexpr const char* kIncomplete = "incomplete";

std::string place_key(int rank) { return "place/" + std::to_string(rank); }

Store shared_store(const Communicator& communicator, const std::string& address) {
  const bool serves = communicator.rank() == 0;
  std::optional<Store> own;
  if (serves) own = make_tcp_store({.address = address, .is_server = true});
  const auto port = communicator.broadcast_bytes(own ? std::to_string(store_port(*own)) : "", 0);
  return own ? *own : make_tcp_store({.address = address, .port = std::stoi(port)});
}

}  // namespace

FailureBarrier::FailureBarrier(const Communicator& communicator, const std::string& address)
    : store_(shared_store(communicator, address)), rank_(communicator.rank()), size_(communicator.size()) {}

bool FailureBarrier::is_complete(const std::string& place, milliseconds deadline) {
  if (!was_complete_) was_complete_ = meet(place, deadline);
  return *was_complete_;
}

bool FailureBarrier::meet(const std::string& place, milliseconds deadline) try {
  limit_answers(store_, deadline);
  store_.set(place_key(rank_), place);
  const bool is_last = store_.add(kCome, 1) == size_;
  if (is_last) return decide(places_agree(place, deadline) ? kComplete : kIncomplete, deadline) == kComplete;
  const std::vector<std::string> decided{kWord};
  if (store_.wait(decided, deadline)) return store_.get(kWord, deadline) == kComplete;
  return decide(kIncomplete, deadline) == kComplete;
} catch (const CommError&) {
  return false;
}

bool FailureBarrier::places_agree(const std::string& place, milliseconds deadline) {
  for (int rank = 0; rank < size_; ++rank)
    if (store_.get(place_key(rank), deadline) != place) return false;
  return true;
}

std::string FailureBarrier::decide(const std::string& word, milliseconds deadline) {
  if (store_.add(kDecisions, 1) == 1) store_.set(kWord, word);
  return store_.get(kWord, deadline);
}

}  // namespace lockstep::detail
