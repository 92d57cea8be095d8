// Where a rank is, for those who ask (lockstep/base/rank_status.h), as long as it is there.
#pragma once

#include <lockstep/base/rank_status.h>

namespace lockstep::detail {

/// While it lives, this rank is noted to be somewhere; then where it was before.
class ActivityScope {
 public:
  explicit ActivityScope(RankActivity activity) : before_(rank_status().activity.load()) {
    note_activity(activity);
  }
  ~ActivityScope() { note_activity(before_); }
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;

 private:
  RankActivity before_;
};

}  // namespace lockstep::detail
