// Makes inputs out of others.
#pragma once

#include <random>
#include <string>

#include "fuzz/target.h"

namespace lockstep::fuzz {

using Random = std::mt19937_64;

/// One of the target's seeds after some changes: bits, bytes, numbers of 16 to 64 bits, pieces cut out,
/// repeated, moved in from another seed, or tokens. Or a row of tokens. The same for the same `random`.
std::string mutated(const Target& target, Random& random);

}  // namespace lockstep::fuzz
