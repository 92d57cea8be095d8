// The former place of WrapPolicy, for programs that include it by this name.
#pragma once

#include <lockstep/parallel/wrap_policy.h>  // IWYU pragma: export
