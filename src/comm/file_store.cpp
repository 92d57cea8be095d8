// The file store: c10d's, behind a look whether the file can be one.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <lockstep/base/error.h>
#include <lockstep/comm/store.h>

#include "comm/c10d.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>

namespace lockstep {
namespace {

// The number of users is what every such file begins with: the key behind its length.
constexpr std::string_view kBeginning{"\x09\0\0\0refcount/", 13};

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& expected,
                         const std::string& got) {
  throw ConfigError("comm", {.what = "file store " + path.string(), .expected = expected, .got = got});
}

void require_store_file(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) refuse(path, "a file that can be created and written", std::strerror(errno));
  std::array<char, kBeginning.size()> beginning{};
  const auto length = ::read(fd, beginning.data(), beginning.size());
  ::close(fd);
  if (length != 0 && std::string_view(beginning.data(), beginning.size()) != kBeginning)
    refuse(path, "no file, or one that was made by a store", "a file with other content");
}

}  // namespace

Store make_file_store(const std::filesystem::path& path, int num_ranks) {
  require_store_file(path);
  detail::StoreImpl impl{.store = c10::make_intrusive<c10d::FileStore>(path.string(), num_ranks),
                         .file = path.string()};
  return Store(std::make_shared<detail::StoreImpl>(std::move(impl)));
}

}  // namespace lockstep
