// A limit on the memory that operator new gives out in this program.
#pragma once

#include <cstddef>

namespace lockstep::fuzz {

/// From here on, operator new throws std::bad_alloc rather than give out more than `bytes` at a time.
void limit_memory(std::size_t bytes);

/// Ends that.
void lift_memory_limit();

}  // namespace lockstep::fuzz
