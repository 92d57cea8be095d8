// Inline collectives: small ones, whose data travel with the announcement.
//
// Ranks that compare what they are about to do send each other a message anyway. Where the data fit into
// it, the round that checks the collective is the collective, and the transport is not asked at all.
#pragma once

#include <string_view>

#include "comm/collectives/collective_runner.h"

namespace lockstep::detail {

class InlineCollective {
 public:
  /// Whether `collective` is small enough; all ranks that call it agree on that.
  static bool is_possible(const Collective& collective);

  /// `scratch` is used until finish().
  InlineCollective(const Collective& collective, int rank, int size, Scratch& scratch);

  /// What this rank gives to every other one.
  std::string_view own_bytes() const;

  /// What member `member` gave.
  void put(int member, std::string_view bytes);

  /// When all are there: writes the results.
  void finish();

 private:
  char* row_of_member(int member);

  ContiguousCollective contiguous_;
  int rank_;
  int size_;
  at::Tensor rows_;  // of an all-reduce
};

}  // namespace lockstep::detail
