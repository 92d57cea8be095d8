// What another host is to do, as bytes for the stdin of a remote shell: no shell sees them, so that nothing
// need be quoted, and no list of processes shows them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// `lockstep ARGUMENTS` in a folder, with variables beside those of that host.
struct Order {
  std::string version;    ///< of the lockstep that wrote it
  std::string directory;  ///< absolute
  std::map<std::string, std::string> variables = {};
  std::vector<std::string> arguments = {};  ///< beginning with the verb
};

/// A line with the number of bytes, then texts that each end with a zero byte.
std::string encode(const Order& order);

/// Reads one order, and no byte more. Blocks until it is there.
/// @throws Error when what comes is something else, or ends before its time
Order read_order(int fd);

/// Decodes what follows the first line. @throws Error as above
Order decode_order(std::string_view bytes);

}  // namespace lockstep::launch
