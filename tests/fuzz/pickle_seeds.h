// Pickles to start from, and the instructions that they are made of.
#pragma once

#include <string>
#include <vector>

namespace lockstep::fuzz {

std::vector<std::string> pickle_seeds();
std::vector<std::string> pickle_tokens();

}  // namespace lockstep::fuzz
