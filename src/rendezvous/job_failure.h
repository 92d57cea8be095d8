// Why the job has failed: the first verdict counts, and every rank hears it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/peer_links.h"
#include "rendezvous/verdict.h"

namespace lockstep::rendezvous {

/// Not for several threads at once.
class JobFailure {
 public:
  using Abort = std::function<void()>;
  using Token = std::shared_ptr<const Abort>;

  JobFailure(int rank, PeerLinks& links) : rank_(rank), links_(links) {}

  bool is_known() const { return verdict_.has_value(); }

  /// Only the first verdict counts. Also passes on what this rank was told itself: then nobody's end can
  /// overtake the news of its cause.
  void declare(Verdict verdict);

  /// Throws it; `where` is what this rank was doing.
  [[noreturn]] void raise(const std::string& where) const;
  /// "rank 2, in all_reduce seq 3".
  std::string place_of(const std::string& where) const;

  /// `abort` is one of take_due() once the job has failed, unless the token is gone by then.
  [[nodiscard]] Token on_failure(Abort abort);
  /// What is to be called now, outside of any lock. Each once.
  std::vector<std::weak_ptr<const Abort>> take_due();

 private:
  int rank_;
  PeerLinks& links_;
  std::optional<Verdict> verdict_;
  std::chrono::steady_clock::time_point declared_at_;
  std::vector<std::weak_ptr<const Abort>> aborts_;
};

}  // namespace lockstep::rendezvous
