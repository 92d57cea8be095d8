#include "comm/join/launcher_socket.h"

#include <lockstep/base/env.h>

#include "base/sockets.h"

namespace lockstep::detail {
namespace {

constexpr auto kVariable = "LOCKSTEP_LISTEN_FD";

}  // namespace

std::optional<int> take_launcher_socket(int port) {
  if (!env::get(kVariable)) return std::nullopt;
  const auto fd = static_cast<int>(env::require_int(kVariable));
  if (lockstep::port_of(fd) != port) return std::nullopt;  // the program meets elsewhere
  env::unset(kVariable);
  return fd;
}

}  // namespace lockstep::detail
