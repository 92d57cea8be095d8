// What a collective writes may be no part of anything else that it uses.
#pragma once

#include <string>

#include "comm/collectives/collective.h"

namespace lockstep::detail {

/// What is wrong with the memory of `collective`'s tensors on rank `rank`: one that is written holds an
/// element twice, or shares memory with another one. What a rank gives to itself may lie in its place
/// already. "" if nothing is wrong, or that cannot be told cheaply.
std::string fault_in_memory(const Collective& collective, int rank);

}  // namespace lockstep::detail
