// The one place that includes all of LibTorch; also the library's precompiled header.
#pragma once

// Some compilers need the complete IValue before torch.h's containers of it.
#include <ATen/core/ivalue.h>
#include <torch/torch.h>
