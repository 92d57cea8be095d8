// The file store: c10d's, for files that are one or can become one.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>
#include <lockstep/comm/store.h>

#include "comm/c10d.h"
#include "comm/join/join_handshake.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>

namespace lockstep {
namespace {

// Every such file begins with the length and the name of the key that counts its users.
constexpr std::string_view kBeginning{"\x09\0\0\0refcount/", 13};

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& expected,
                         const std::string& got) {
  throw ConfigError("comm", {.what = "file store " + path.string(), .expected = expected, .got = got});
}

void require_store_file(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) refuse(path, "a file that can be created and written", std::strerror(errno));
  while (::flock(fd.get(), LOCK_SH) != 0)  // whoever makes the store writes its beginning piece by piece
    if (errno != EINTR) refuse(path, "a file that can be locked", std::strerror(errno));
  std::array<char, kBeginning.size()> beginning{};
  const auto length = ::read(fd.get(), beginning.data(), beginning.size());
  if (length != 0 && std::string_view(beginning.data(), beginning.size()) != kBeginning)
    refuse(path, "no file, or one that was made by a store", "a file with other content");
}

// Ranks that leave c10d's store at one moment each see that others are still there, and none removes the
// file: it counts those that are there and those that have left one after the other, and looks at the first
// number seen. Here one operation on the file is every rank's last, and tells it who has left before.
class FileStore final : public c10d::FileStore {
 public:
  using c10d::FileStore::FileStore;
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  ~FileStore() override {
    try {
      if (::access(path_.c_str(), F_OK) == 0 && leave()) ::unlink(path_.c_str());
    } catch (const std::exception&) {
      // A file that cannot be read or written any more stays.
    }
    path_.clear();  // c10d's destructor looks for the file, and finds nothing to do
  }

  void set_users(int rank, detail::JoinedRanks ranks) {
    rank_ = rank;
    ranks_ = std::move(ranks);
  }

 private:
  static constexpr std::size_t kMostBits = 62;  // a sum has 64, one of them the sign

  // Whether this process is the last one.
  bool leave() {
    if (!ranks_.empty() && ranks_.size() <= kMostBits) return leave_living();
    addHelper(refCountKey_, -1);
    const auto left = addHelper(cleanupKey_, 1);
    return left >= numWorkers_ && addHelper(refCountKey_, 0) == 0;
  }

  // The ranks that have left are bits of a sum. Ranks that are gone are looked up first: a rank that is there
  // now will leave later than this one, or is known by its bit.
  bool leave_living() {
    std::int64_t gone = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].is_gone()) gone |= std::int64_t{1} << rank;
    }
    const auto all = (std::int64_t{1} << ranks_.size()) - 1;
    return (gone | addHelper("lockstep/left", std::int64_t{1} << rank_)) == all;
  }

  int rank_ = 0;
  detail::JoinedRanks ranks_;
};

}  // namespace

namespace detail {

void set_users(const Store& store, int rank, JoinedRanks ranks) {
  if (auto* const file = dynamic_cast<FileStore*>(store.impl().store.get()))
    file->set_users(rank, std::move(ranks));
}

}  // namespace detail

Store make_file_store(const std::filesystem::path& path, int num_ranks) {
  require_store_file(path);
  detail::StoreImpl impl{.store = c10::make_intrusive<FileStore>(path.string(), num_ranks),
                         .file = path.string()};
  return Store(std::make_shared<detail::StoreImpl>(std::move(impl)));
}

}  // namespace lockstep
