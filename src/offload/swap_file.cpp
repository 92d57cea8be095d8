#include "offload/swap_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/unique_fd.h>

#include "base/format.h"
#include "offload/io_engine.h"
#include "offload/swap_folder.h"

namespace lockstep::offload {
namespace {

// Whether the file lies on tmpfs, which accepts O_DIRECT since Linux 6.6, without an effect.
bool is_in_memory(int fd) {
  struct statfs status {};
  return ::fstatfs(fd, &status) == 0 && status.f_type == TMPFS_MAGIC;
}

// Some file systems refuse the flag, others only transfers: one is tried.
// Opens `path`, a file of at least kAlignment bytes, for direct reads and writes; empty where its file
// system does not have them, or wants another alignment.
UniqueFd open_direct(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
  if (!fd || is_in_memory(fd.get())) return {};
  const AlignedBuffer buffer(kAlignment);
  const auto bytes = ::pread(fd.get(), buffer.bytes().data(), kAlignment, 0);
  return bytes == static_cast<ssize_t>(kAlignment) ? std::move(fd) : UniqueFd();
}

[[noreturn]] void throw_failure(const TransferState& transfer, const BlockFailure& failure) {
  const bool is_read = transfer.direction() == Direction::kRead;
  const auto reason = failure.error_number == 0 ? "the end of the file: it was cut short"
                                                : detail::system_error_text(failure.error_number);
  throw IoError("offload", {.what = std::string(is_read ? "cannot read" : "cannot write") + " swap file '" +
                                    transfer.path().string() + "'",
                            .expected = std::to_string(failure.bytes) + " bytes at offset " +
                                        std::to_string(failure.offset),
                            .got = reason});
}

}  // namespace

Transfer& Transfer::operator=(Transfer&& other) noexcept {
  if (state_ && state_ != other.state_) (void)state_->wait();
  state_ = std::move(other.state_);
  return *this;
}

bool Transfer::is_done() const { return !state_ || state_->is_done(); }

Transfer::~Transfer() {
  if (state_) (void)state_->wait();
}

void Transfer::wait() {
  const auto state = std::move(state_);
  if (!state) return;
  if (const auto failure = state->wait()) throw_failure(*state, *failure);
}

namespace {

namespace fs = std::filesystem;

// Opens the file through the page cache, which posix_fallocate() needs where the file system cannot allocate.
UniqueFd created(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd)
    throw IoError("offload", {.what = "cannot create swap file '" + path.string() + "'",
                              .got = detail::system_error_text(errno)});
  return fd;
}

/// Removes the file when it is destroyed.
class FileName {
 public:
  explicit FileName(fs::path path) : path_(std::move(path)), owner_(::getpid()) {}
  FileName(const FileName&) = delete;
  FileName& operator=(const FileName&) = delete;
  ~FileName() {
    if (owner_ == ::getpid()) ::unlink(path_.c_str());
  }

 private:
  fs::path path_;
  pid_t owner_;  // forked children have copies
};

}  // namespace

struct SwapFile::Opened {
  Opened(const SwapFolder& folder, std::string_view file_name, std::uint64_t wanted, const SwapOptions& given)
      : options(given), bytes(aligned(wanted)), activity(std::make_shared<FileActivity>()) {
    activity->path = folder.path() / file_name;
    fd = created(activity->path);
    name = std::make_unique<FileName>(activity->path);
    if (bytes > 0)
      allocate_file(fd.get(), activity->path, bytes, "rank " + std::to_string(folder.options().rank));
    if (auto direct = options.direct && bytes > 0 ? open_direct(activity->path) : UniqueFd()) {
      fd = std::move(direct);
      activity->is_direct = true;
    }
    engine = make_engine(fd.get(), options);
  }

  const SwapOptions options;
  const std::uint64_t bytes;
  const std::shared_ptr<FileActivity> activity;
  std::unique_ptr<FileName> name;
  UniqueFd fd;
  std::unique_ptr<IoEngine> engine;  // last: completes its blocks before the file is closed
};

SwapFile::SwapFile(const SwapFolder& folder, std::string_view name, std::uint64_t bytes,
                   const SwapOptions& options) {
  validate(options);
  opened_ = std::make_unique<Opened>(folder, name, bytes, options);
  if (folder.options().rank != 0) return;
  log_info("offload: " + path().string() + " holds " + byte_text(opened_->bytes) + ", by " +
           std::string(engine()) + (is_direct() ? ", past the page cache" : ", through the page cache"));
}

SwapFile::SwapFile(SwapFile&&) noexcept = default;
SwapFile& SwapFile::operator=(SwapFile&&) noexcept = default;
SwapFile::~SwapFile() = default;

Transfer SwapFile::read(std::uint64_t offset, std::span<std::byte> bytes) {
  return begin(Direction::kRead, offset, bytes.data(), bytes.size());
}

// Blocks have one type of address for both directions.
Transfer SwapFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  return begin(Direction::kWrite, offset, const_cast<std::byte*>(bytes.data()), bytes.size());
}

Transfer SwapFile::begin(Direction direction, std::uint64_t offset, std::byte* data, std::size_t size) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const bool is_aligned = offset % kAlignment == 0 && size % kAlignment == 0 && address % kAlignment == 0;
  if (!is_aligned || offset > bytes() || size > bytes() - offset)
    throw Error("offload", {.what = "a transfer of swap file '" + path().string() + "'",
                            .expected = "offset, size and address that are multiples of " +
                                        std::to_string(kAlignment) + ", within " + byte_text(bytes()),
                            .got = "offset " + std::to_string(offset) + ", size " + std::to_string(size) +
                                   ", address modulo " + std::to_string(kAlignment) + " " +
                                   std::to_string(address % kAlignment)});
  if (size == 0) return {};
  const auto block_size = static_cast<std::size_t>(opened_->options.block_size);
  const auto count = (size + block_size - 1) / block_size;
  const auto state = std::make_shared<TransferState>(direction, opened_->activity, count);
  std::vector<Block> blocks;
  for (std::size_t at = 0; at < size; at += block_size)
    blocks.push_back({.transfer = state,
                      .data = data + at,
                      .bytes = std::min(block_size, size - at),
                      .offset = offset + at});
  opened_->engine->submit(blocks);
  return Transfer(state);
}

const fs::path& SwapFile::path() const { return opened_->activity->path; }
std::uint64_t SwapFile::bytes() const { return opened_->bytes; }
std::string_view SwapFile::engine() const { return opened_->engine->name(); }
bool SwapFile::is_direct() const { return opened_->activity->is_direct; }

SwapStatistics SwapFile::statistics() const {
  const FileActivity& activity = *opened_->activity;
  return {.bytes_read = activity.bytes_read,
          .bytes_written = activity.bytes_written,
          .read_wait = std::chrono::nanoseconds(activity.read_wait_ns),
          .write_wait = std::chrono::nanoseconds(activity.write_wait_ns)};
}

}  // namespace lockstep::offload
