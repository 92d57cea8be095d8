// Folders that are removed when their owner goes or, at the latest, when the program calls exit().
#pragma once

#include <filesystem>

namespace lockstep::offload {

/// Removes `folder` with all in it; what cannot be removed is logged.
void remove_or_warn(const std::filesystem::path& folder);

/// Removes `folder` at exit() of this process, unless remove_now() was called. Thread-safe, as all here.
void remove_at_exit(const std::filesystem::path& folder);

/// Removes `folder` now if this process is the one that asked for its removal, and not a forked child of it.
void remove_now(const std::filesystem::path& folder);

}  // namespace lockstep::offload
