// The former name of checkpoint_tools.h.
#pragma once

#include <lockstep/formats/checkpoint_tools.h>
