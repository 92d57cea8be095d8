// How the ranks of a strategy come to be and talk: options that all strategies of several ranks have.
#pragma once

#include <span>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/comm/reduce_op.h>

namespace lockstep {

/// How the ranks of one node come to be.
enum class StartMethod {
  kAuto,  ///< fork where that is still possible, else spawn ("popen")
  kFork,  ///< fork, or an error
  kSpawn  ///< re-execute the program
};

LOCKSTEP_API std::span<const OptionName<StartMethod>> option_names(StartMethod);
LOCKSTEP_API std::span<const OptionName<Reduction>> option_names(Reduction);

}  // namespace lockstep
