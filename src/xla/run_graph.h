// What runs and captured steps have in common: programs by the structure of their graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "xla/executable.h"
#include "xla/plan.h"

namespace lockstep::xla {

/// The program, compiled where no graph of its structure was before. With device_mutex(); blocks.
std::shared_ptr<const Executable> program_of(const Plan& plan,
                                             const std::vector<std::int64_t>& overwritten_by);

}  // namespace lockstep::xla
