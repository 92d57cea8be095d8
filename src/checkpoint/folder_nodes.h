// Which ranks share a folder: the nodes of a job, as files see them.
#pragma once

#include <filesystem>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>

namespace lockstep::detail {

/// A node is the ranks that see one folder, whatever machines they are on and whatever path leads there.
/// Nodes are numbered by their lowest rank, which leads them.
class LOCKSTEP_API FolderNodes {
 public:
  /// Looks who else sees `folder`, which must be there. Collective, blocking.
  /// @throws on every rank when one cannot write there: its own error, or CheckpointError naming the rank
  FolderNodes(const std::filesystem::path& folder, const Communicator& communicator);

  int count() const { return static_cast<int>(ranks_.size()); }
  int own() const { return own_; }
  /// Its ranks, in ascending order.
  const std::vector<int>& ranks_of(int node) const { return ranks_.at(static_cast<std::size_t>(node)); }
  int leader_of(int node) const { return ranks_of(node).front(); }
  bool leads() const { return index_ == 0; }
  /// This rank's number within its node.
  int index() const { return index_; }

  /// The rank that rank `index` of `node` has to do with on the node `jump` nodes further on.
  int partner(int node, int index, int jump) const;

 private:
  std::vector<std::vector<int>> ranks_;  // by node
  int own_ = 0;
  int index_ = 0;
};

}  // namespace lockstep::detail
