#include "checkpoint/node_folders.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "checkpoint/together.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

std::string new_mark(int rank) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), ".here-%d-%08x%08x", rank, std::random_device()(),
                std::random_device()());
  return name.data();
}

// A temporary file that is removed with this object.
class Mark {
 public:
  Mark(const fs::path& folder, const std::string& name) : path_(folder / name) {
    write_file_atomically(path_, "");
  }
  ~Mark() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

 private:
  fs::path path_;
};

int first_seen(const fs::path& folder, const std::vector<std::string>& marks) {
  for (std::size_t rank = 0; rank < marks.size(); ++rank)
    if (fs::exists(folder / marks[rank])) return static_cast<int>(rank);
  throw IoError("checkpoint", {.what = "folder " + folder.string() + " is in use",
                               .expected = "the file that this rank has just created in it",
                               .got = "no such file",
                               .hint = "another job uses this run directory: each needs its own"});
}

}  // namespace

FolderNodes::FolderNodes(const fs::path& folder, const Communicator& communicator) {
  std::unique_ptr<Mark> own_mark;
  const auto what = "folder " + folder.string() + " cannot be used";
  const auto marks = all_or_none(communicator, what, [&] {
    const auto name = new_mark(communicator.rank());
    own_mark = std::make_unique<Mark>(folder, name);
    return name;
  });
  const auto leaders =
      all_or_none(communicator, what, [&] { return std::to_string(first_seen(folder, marks)); });
  std::map<int, std::vector<int>> by_leader;
  for (std::size_t rank = 0; rank < leaders.size(); ++rank)
    by_leader[std::stoi(leaders[rank])].push_back(static_cast<int>(rank));
  for (auto& [leader, ranks] : by_leader) {
    for (std::size_t index = 0; index < ranks.size(); ++index) {
      if (ranks[index] != communicator.rank()) continue;
      own_ = count();
      index_ = static_cast<int>(index);
    }
    ranks_.push_back(std::move(ranks));
  }
}

int FolderNodes::partner(int node, int index, int jump) const {
  const auto& ranks = ranks_of((node + jump) % count());
  return ranks[static_cast<std::size_t>(index) % ranks.size()];
}

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
    ::unlink(
        unfinished(folder_ / files_[piece.file].first).c_str());  // frees memory, of which none may be left
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
