// The world of one.
#pragma once

#include <memory>

#include "comm/group/group.h"

namespace lockstep::detail {

/// A group whose only rank is this process; collectives copy where they must and never block.
std::shared_ptr<Group> single_group();

/// The same for a rank of a larger job that is alone in a sub-group.
std::shared_ptr<Group> single_group(GroupIdentity identity);

}  // namespace lockstep::detail
