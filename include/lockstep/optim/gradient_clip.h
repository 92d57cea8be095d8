// The former place of GradientClip, for programs that include it by this name.
#pragma once

#include <lockstep/optim/grad_norm.h>  // IWYU pragma: export
