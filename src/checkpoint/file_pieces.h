// Files on their way to the folders of other nodes, in pieces of a bounded size.
//
// What goes wrong with a file on one side must not stop the other, which sends or awaits all pieces that were
// agreed on: it is kept until then.
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
#include <lockstep/formats/mapped_file.h>

namespace lockstep::detail {

/// Names and sizes in bytes, as sender and receivers both know them.
using FileList = std::vector<std::pair<std::string, std::uint64_t>>;

/// A run of bytes of one file.
struct FilePiece {
  std::size_t file;  ///< its number in the list
  std::uint64_t offset;
  std::uint64_t bytes;
};

/// All of them, in order, none above 8 MiB. An empty file has one of no bytes.
LOCKSTEP_API std::vector<FilePiece> pieces_of(const FileList& files);

/// The files of one folder, for reading.
class OutgoingFiles {
 public:
  OutgoingFiles(std::filesystem::path folder, const FileList& files)
      : folder_(std::move(folder)), files_(files) {}

  /// The bytes, valid until the next call; zeros once something has failed.
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

/// The files of one folder, for writing; pieces come in order. A file has its name when it is complete.
class LOCKSTEP_API IncomingFiles {
 public:
  IncomingFiles(std::filesystem::path folder, const FileList& files)
      : folder_(std::move(folder)), files_(files) {}

  /// Where `piece` is to be put; valid until the next call.
  at::Tensor space(const FilePiece& piece);
  /// Writes what was put there. Blocking; nothing once something has failed, of which no part is left.
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
