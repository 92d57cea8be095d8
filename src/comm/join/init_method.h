// Where ranks meet, as torch.distributed writes it: env://, tcp://HOST:PORT, file:///PATH.
#pragma once

#include <map>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// The parts of an init_method.
struct InitMethod {
  std::string scheme = {};                             ///< "env", "tcp" or "file"
  std::string host = {};                               ///< of tcp; an IPv6 address without its brackets
  int port = 0;                                        ///< of tcp
  std::string path = {};                               ///< of file
  std::map<std::string, std::string> parameters = {};  ///< rank, world_size
};

/// @throws ConfigError naming the part that is missing or malformed
LOCKSTEP_API InitMethod parse_init_method(const std::string& text);

}  // namespace lockstep::detail
