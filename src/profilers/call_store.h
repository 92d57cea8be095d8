// The statistics of all actions over all threads.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include <lockstep/profilers/profiler.h>

#include "profilers/action_table.h"
#include "profilers/per_thread.h"

namespace lockstep::detail {

template <class Stats>
class CallStore {
 public:
  void add(Action action, std::chrono::nanoseconds duration) noexcept {
    auto* const table = threads_.local();
    auto* const stats = table ? table->at(action.index()) : nullptr;
    if (stats) stats->add(std::max(duration, std::chrono::nanoseconds(0)));
  }

  struct Row {
    Action action;
    std::unique_ptr<Stats> stats;
  };

  /// Of each action that was called, summed over the threads.
  std::vector<Row> rows() const {
    std::vector<Row> rows;
    for (const Action action : Action::all()) {
      auto sum = std::make_unique<Stats>();
      threads_.for_each([&](const auto&, const ActionTable<Stats>& table) {
        if (const Stats* stats = table.find(action.index())) sum->merge(*stats);
      });
      if (sum->calls() > 0) rows.push_back({action, std::move(sum)});
    }
    return rows;
  }

 private:
  PerThread<ActionTable<Stats>> threads_;
};

}  // namespace lockstep::detail
