// Stand-in; see ../../README.md.
#pragma once

#include <gloo/context.h>
