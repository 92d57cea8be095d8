// The former name of weights.h.
#pragma once

#include <lockstep/checkpoint/weights.h>
