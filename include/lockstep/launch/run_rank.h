// The former place of run_rank(), for programs that include it by this name.
#pragma once

#include <lockstep/launch/join.h>  // IWYU pragma: export
