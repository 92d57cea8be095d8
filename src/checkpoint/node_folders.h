// The folders of a job's nodes: which ranks share one, and how files travel from one to another, in pieces of
// a bounded size.
//
// A failure with a file on one side must not stop the other side, which sends or awaits all pieces that were
// agreed on: it is stored, and thrown when all pieces have gone.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/formats/mapped_file.h>

namespace lockstep::detail {

/// The nodes of a job, as files see them: a node is a set of ranks that see the same folder, on whatever
/// machines and under whatever paths. Nodes are ordered by their lowest rank, which leads the node.
class LOCKSTEP_API FolderNodes {
 public:
  /// Finds out which ranks see the same `folder`, which must exist. Collective, blocking.
  /// @throws on every rank when one cannot write there: that rank its own error, the others CheckpointError
  /// naming it
  FolderNodes(const std::filesystem::path& folder, const Communicator& communicator);

  int count() const { return static_cast<int>(ranks_.size()); }
  int own() const { return own_; }
  /// The ranks of `node`, in ascending order.
  const std::vector<int>& ranks_of(int node) const { return ranks_.at(static_cast<std::size_t>(node)); }
  int leader_of(int node) const { return ranks_of(node).front(); }
  bool leads() const { return index_ == 0; }
  /// This rank's number within its node.
  int index() const { return index_; }

  /// The rank on the node `jump` nodes after `node` with which rank `index` of `node` exchanges files.
  int partner(int node, int index, int jump) const;

 private:
  std::vector<std::vector<int>> ranks_;  // by node
  int own_ = 0;
  int index_ = 0;
};

/// Names and sizes in bytes, as sender and receivers both know them.
using FileList = std::vector<std::pair<std::string, std::uint64_t>>;

/// A run of bytes of one file.
struct FilePiece {
  std::size_t file;  ///< its number in the list
  std::uint64_t offset;
  std::uint64_t bytes;
};

/// The pieces of `files` in order, of up to 8 MiB each. An empty file has one piece of no bytes.
LOCKSTEP_API std::vector<FilePiece> pieces_of(const FileList& files);

/// The files of one folder, for reading.
class OutgoingFiles {
 public:
  OutgoingFiles(std::filesystem::path folder, const FileList& files)
      : folder_(std::move(folder)), files_(files) {}

  /// The bytes of `piece`, valid until the next call; zeros once something has failed.
  at::Tensor read(const FilePiece& piece);
  /// @throws what has failed first, such as IoError, if anything
  void finish() const;

 private:
  at::Tensor mapped(const FilePiece& piece);

  std::filesystem::path folder_;
  FileList files_;
  std::size_t open_ = static_cast<std::size_t>(-1);
  std::unique_ptr<MappedFile> file_;  // number open_
  std::exception_ptr failure_;
};

/// The files of one folder, for writing; pieces arrive in order. A file gets its name when it is complete.
class LOCKSTEP_API IncomingFiles {
 public:
  IncomingFiles(std::filesystem::path folder, const FileList& files)
      : folder_(std::move(folder)), files_(files) {}

  /// The memory into which `piece` is to be received; valid until the next call.
  at::Tensor space(const FilePiece& piece);
  /// Writes the piece that was received into space(). Blocking. Does nothing once something has failed; no
  /// part of a failed file is left.
  void write(const FilePiece& piece);
  /// @throws what has failed first, such as IoError, if anything
  void finish() const;

 private:
  void append(const FilePiece& piece);

  std::filesystem::path folder_;
  FileList files_;
  at::Tensor buffer_;
  UniqueFd fd_;
  std::exception_ptr failure_;
};

}  // namespace lockstep::detail
