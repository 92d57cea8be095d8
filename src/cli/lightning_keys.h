// Keys of LightningCLI's configuration files that mean something else here, or nothing.
#pragma once

#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_text.h>

namespace lockstep::detail {

/// Rewrites `seed_everything: true` to seed 0 and `false` to none, as Lightning 2.6 means them, and takes out
/// `trainer.callbacks` and `trainer.plugins` that are null or empty. Those of other sources than files stay.
/// @throws ConfigError for such a key that holds something: objects are given in the program; for an option
/// that Lightning's Trainer has no more, with what to write instead
LOCKSTEP_API void take_lightning_keys(std::vector<Assignment>& assignments);

}  // namespace lockstep::detail
