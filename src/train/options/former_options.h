// Options of Lightning's Trainer that are gone there, too, but stand in old files and commands.
#pragma once

#include <string_view>

namespace lockstep::detail {

/// What to write instead of the option `key`, "trainer.gpus", in a sentence without its end; empty where it
/// was none.
std::string_view instead_of_former(std::string_view key);

}  // namespace lockstep::detail
