#include "comm/launcher_store.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <mutex>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "base/format.h"
#include "comm/kv_store.h"
#include "comm/timeouts.h"

namespace lockstep::detail {
namespace {

constexpr auto kPlace = "LOCKSTEP_STORE";
constexpr auto kScope = "LOCKSTEP_STORE_SCOPE";
constexpr auto kKeyFile = "LOCKSTEP_STORE_TOKEN_FD";

// All local ranks share the file, and with it its position.
std::string read_key(int fd) {
  std::array<char, 4096> bytes{};
  const auto count = ::pread(fd, bytes.data(), bytes.size(), 0);
  if (count <= 0)
    throw ConfigError("comm",
                      {.what = kKeyFile,
                       .expected = "the descriptor of a file that the launcher has left open",
                       .got = std::to_string(fd) + ": " + system_error_text(count < 0 ? errno : EIO),
                       .hint = "a program between the launcher and this one may have closed it, as Python's "
                               "subprocess does unless it gets close_fds=False"});
  return {bytes.data(), static_cast<std::size_t>(count)};
}

// Read once, and no business of programs that this rank may start.
std::string take_key() {
  static std::mutex mutex;
  static std::string key;
  const std::lock_guard lock(mutex);
  if (key.empty()) {
    const auto fd = static_cast<int>(env::require_int(kKeyFile));
    key = read_key(fd);
    ::close(fd);
    env::unset(kKeyFile);
  }
  return key;
}

bool is_place_of_launcher(const CommOptions& options) {
  return env::get("MASTER_ADDR") == options.main_address &&
         env::get("MASTER_PORT") == std::to_string(options.main_port);
}

}  // namespace

std::optional<Store> launcher_store(const CommOptions& options) {
  const auto place = env::get(kPlace);
  if (!place || !is_place_of_launcher(options)) return std::nullopt;
  auto endpoint = rendezvous::parse_endpoint(*place, 0);
  if (!endpoint || endpoint->port == 0)
    throw ConfigError("comm", {.what = kPlace, .expected = "HOST:PORT", .got = "\"" + *place + "\""});
  const int port = endpoint->port;
  const auto timeout = bounded(options.timeout);
  auto connection = std::make_shared<KvConnection>(std::move(*endpoint), take_key(), timeout);
  auto store = c10::make_intrusive<KvStore>(std::move(connection), env::get(kScope).value_or(""), timeout);
  return Store(std::make_shared<StoreImpl>(StoreImpl{std::move(store), port}));
}

}  // namespace lockstep::detail
