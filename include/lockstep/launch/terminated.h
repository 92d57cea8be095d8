// The former place of Terminated, for programs that include it by this name.
#pragma once

#include <lockstep/launch/errors.h>  // IWYU pragma: export
