// The board on which the members of a group announce collectives, in the segments that they share.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

#include "comm/shared_memory/board_protocol.h"
#include "comm/shared_memory/group_segments.h"
#include "rendezvous/meetings.h"

namespace lockstep::detail {

class LOCKSTEP_API SegmentBoard final : public rendezvous::HostBoard {
 public:
  /// Bytes that an announcement may bring along.
  static constexpr std::size_t kMostPayload = 16 << 10;

  /// What the first rank may pass on, in bytes.
  static std::size_t most_relayed();

  /// Of the group, or host, whose members are these ranks of the job. Borrows the segments.
  SegmentBoard(GroupSegments& segments, std::vector<int> ranks)
      : segments_(segments), board_(segments), ranks_(std::move(ranks)) {}

  void show(const rendezvous::Announcement& announcement, std::string_view payload) override;
  const rendezvous::Announcement* front(int rank) const override;
  std::string_view payload(int rank) const override;
  bool await_all() override;
  bool is_ahead(int rank) const override;
  void relay(std::string_view bytes) override;
  bool await_relay() override;
  std::optional<std::string_view> relayed() const override;

 private:
  int member_of(int rank) const;

  GroupSegments& segments_;
  BoardProtocol<GroupSegments> board_;
  std::vector<int> ranks_;
};

/// The hosts of a group whose members are these ranks of the job, and whose segments on this host are `host`;
/// without a board.
rendezvous::Hosts hosts_of(const HostSegments& host, std::span<const int> ranks);

/// Whether the ranks of `hosts` can announce host by host: of very many the sizes of uneven parts fit no
/// board.
bool may_announce_by_hosts(const rendezvous::Hosts& hosts);

}  // namespace lockstep::detail
