// The descriptors that c10d and Gloo open and keep to themselves.
#pragma once

#include <sys/types.h>

#include <compare>
#include <span>
#include <vector>

namespace lockstep::detail {

/// An open socket or pipe, or a nameless file such as epoll's. Numbers are used again, so it is known by what
/// it stands for, too.
struct Descriptor {
  int fd = -1;
  dev_t device = 0;
  ino_t inode = 0;

  auto operator<=>(const Descriptor&) const = default;
};

/// Finds the descriptors that appear during its life, whichever thread opens them.
class DescriptorWatch {
 public:
  DescriptorWatch();

  /// Those that have appeared so far. From now on they are closed in programs that this process executes.
  std::vector<Descriptor> keep_private() const;

 private:
  std::vector<Descriptor> before_;
};

/// Ends the connections among `descriptors` that are still open: whoever waits for one, here or at its
/// other end, sees it closed. The descriptors stay their owners'.
void shut_down(std::span<const Descriptor> descriptors);

}  // namespace lockstep::detail
