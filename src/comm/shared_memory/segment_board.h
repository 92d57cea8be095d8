// The board on which the members of a group announce collectives, in the segments that they share.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

#include "comm/shared_memory/board_protocol.h"
#include "comm/shared_memory/group_segments.h"
#include "rendezvous/meetings.h"

namespace lockstep::detail {

class LOCKSTEP_API SegmentBoard final : public rendezvous::AnnouncementBoard {
 public:
  /// Bytes that an announcement may bring along.
  static constexpr std::size_t kMostPayload = 16 << 10;

  /// Of the group whose members are these ranks of the job. Borrows the segments.
  SegmentBoard(GroupSegments& segments, std::vector<int> ranks)
      : board_(segments), ranks_(std::move(ranks)) {}

  void show(const rendezvous::Announcement& announcement, std::string_view payload) override;
  const rendezvous::Announcement* front(int rank) const override;
  std::string_view payload(int rank) const override;
  bool await_all() override;
  bool is_ahead(int rank) const override;

 private:
  int member_of(int rank) const;

  BoardProtocol<GroupSegments> board_;
  std::vector<int> ranks_;
};

}  // namespace lockstep::detail
