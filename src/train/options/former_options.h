// Options that Lightning's Trainer has removed, and that old files and commands still name.
#pragma once

#include <string_view>

namespace lockstep::detail {

/// The advice that replaces the removed option `key` ("trainer.gpus"), as a sentence without its full stop;
/// empty where `key` was no such option.
std::string_view instead_of_former(std::string_view key);

}  // namespace lockstep::detail
