// The random numbers of a device: seed and offset, as CUDA's.
#pragma once

#include <ATen/core/Generator.h>

#include "sim/streams.h"

namespace lockstep::sim {

const at::Generator& default_generator(int device);
at::Generator make_device_generator(int device);

/// Where a kernel starts; the next one starts elsewhere.
RandomState next_state(const at::Generator& generator);

/// The numbers of one kernel.
at::Generator host_generator(const RandomState& state);

}  // namespace lockstep::sim
