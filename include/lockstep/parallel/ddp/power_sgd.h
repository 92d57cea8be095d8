// The former place of PowerSgd, for programs that include it by this name.
#pragma once

#include <lockstep/parallel/ddp/comm_hook.h>  // IWYU pragma: export
