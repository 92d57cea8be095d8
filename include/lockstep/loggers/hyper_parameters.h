// The former place of HyperParameters, for programs that include it by this name.
#pragma once

#include <lockstep/loggers/logger.h>  // IWYU pragma: export
