// The former place of resolve_batch_sizes(), for programs that include it by this name.
#pragma once

#include <lockstep/deepspeed/complete.h>  // IWYU pragma: export
