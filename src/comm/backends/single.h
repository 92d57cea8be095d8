// The world of one.
#pragma once

#include <memory>

#include "comm/group.h"

namespace lockstep::detail {

/// A group whose only rank is this process; collectives copy where they must and never block.
std::shared_ptr<Group> single_group();

}  // namespace lockstep::detail
