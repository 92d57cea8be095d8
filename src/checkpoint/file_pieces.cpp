#include "checkpoint/file_pieces.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kTransferBytes = std::uint64_t{8} << 20;

[[noreturn]] void refuse_file(const fs::path& path, const char* verb, int error_number) {
  throw IoError("checkpoint", {.what = path.string() + " cannot be " + verb,
                               .got = std::generic_category().message(error_number)});
}

fs::path unfinished(const fs::path& path) {
  return path.parent_path() / ("." + path.filename().string() + ".part");
}

at::Tensor bytes_at(void* data, std::uint64_t bytes) {
  return at::from_blob(data, {static_cast<std::int64_t>(bytes)}, at::kByte);
}

}  // namespace

std::vector<FilePiece> pieces_of(const FileList& files) {
  std::vector<FilePiece> pieces;
  for (std::size_t file = 0; file < files.size(); ++file) {
    std::uint64_t offset = 0;
    do {
      const auto bytes = std::min(files[file].second - offset, kTransferBytes);
      pieces.push_back({file, offset, bytes});
      offset += bytes;
    } while (offset < files[file].second);
  }
  return pieces;
}

at::Tensor OutgoingFiles::read(const FilePiece& piece) {
  if (!failure_) {
    try {
      return mapped(piece);
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  return at::zeros({static_cast<std::int64_t>(piece.bytes)}, at::kByte);
}

at::Tensor OutgoingFiles::mapped(const FilePiece& piece) {
  const auto& [name, bytes] = files_[piece.file];
  if (open_ != piece.file) {
    file_ = std::make_unique<MappedFile>(folder_ / name, MappedFile::Access::kPrivate);
    open_ = piece.file;
  }
  const auto all = file_->writable_bytes();
  if (all.size() != bytes) {
    throw IoError("checkpoint", {.what = (folder_ / name).string() + " has another size than it had",
                                 .expected = std::to_string(bytes) + " bytes",
                                 .got = std::to_string(all.size())});
  }
  return bytes_at(all.data() + piece.offset, piece.bytes);
}

void OutgoingFiles::finish() const {
  if (failure_) std::rethrow_exception(failure_);
}

at::Tensor IncomingFiles::space(const FilePiece& piece) {
  if (!buffer_.defined()) buffer_ = at::empty({static_cast<std::int64_t>(kTransferBytes)}, at::kByte);
  return buffer_.narrow(0, 0, static_cast<std::int64_t>(piece.bytes));
}

void IncomingFiles::write(const FilePiece& piece) {
  if (failure_) return;
  try {
    append(piece);
  } catch (...) {
    failure_ = std::current_exception();
    fd_.reset();
    ::unlink(unfinished(folder_ / files_[piece.file].first).c_str());  // memory, and there may be none left
  }
}

void IncomingFiles::append(const FilePiece& piece) {
  const auto& [name, bytes] = files_[piece.file];
  const auto path = folder_ / name, part = unfinished(path);
  if (piece.offset == 0) {
    fd_ = UniqueFd(::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd_) refuse_file(path, "created", errno);
  }
  const auto* data = static_cast<const std::byte*>(buffer_.const_data_ptr());
  for (std::uint64_t done = 0; done < piece.bytes;) {
    const auto written = ::write(fd_.get(), data + done, piece.bytes - done);
    if (written < 0 && errno != EINTR) refuse_file(path, "written", errno);
    if (written > 0) done += static_cast<std::uint64_t>(written);
  }
  if (piece.offset + piece.bytes < bytes) return;
  fd_.reset();
  if (std::rename(part.c_str(), path.c_str()) != 0) refuse_file(path, "renamed to its place", errno);
}

void IncomingFiles::finish() const {
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace lockstep::detail
