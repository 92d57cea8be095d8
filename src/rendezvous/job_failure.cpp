#include "rendezvous/job_failure.h"

#include <utility>

namespace lockstep::rendezvous {
namespace {

using std::chrono::steady_clock;

constexpr auto kOrderlyEnding = std::chrono::milliseconds(200);

}  // namespace

void JobFailure::declare(Verdict verdict) {
  if (verdict_) return;
  const auto payload = to_payload(verdict);
  for (int rank = 0; rank < links_.size(); ++rank) {
    links_.send(rank, header_of(MessageKind::kVerdict, payload), payload, steady_clock::now());
  }
  verdict_ = std::move(verdict);
  declared_at_ = steady_clock::now();
}

void JobFailure::raise(const std::string& where) const { rendezvous::raise(*verdict_, place_of(where)); }

std::string JobFailure::place_of(const std::string& where) const {
  return "rank " + std::to_string(rank_) + (where.empty() ? "" : ", in " + where);
}

JobFailure::Token JobFailure::on_failure(Abort abort) {
  auto token = std::make_shared<const Abort>(std::move(abort));
  std::erase_if(aborts_, [](const auto& each) { return each.expired(); });
  aborts_.push_back(token);
  return token;
}

std::vector<std::weak_ptr<const JobFailure::Abort>> JobFailure::take_due() {
  if (!verdict_ || aborts_.empty()) return {};
  // What was agreed on before a rank left may still be finished.
  const bool is_due =
      verdict_->failure == Failure::kMismatch || steady_clock::now() >= declared_at_ + kOrderlyEnding;
  return is_due ? std::exchange(aborts_, {}) : std::vector<std::weak_ptr<const Abort>>();
}

}  // namespace lockstep::rendezvous
