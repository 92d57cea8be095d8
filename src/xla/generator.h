// The random numbers of a device: those of the n-th operator that draws some follow from seed and n, wherever
// it runs.
#pragma once

#include <optional>

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include "xla/graph.h"

namespace lockstep::xla {

/// Seeded as LibTorch seeds others until somebody does. Valid until the process ends.
const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator make_device_generator(c10::DeviceIndex device);

/// {seed, n} for the next operator, two int64 on the device. With device_mutex().
/// @throws c10::Error for a generator of another device
Value next_random_state(const std::optional<at::Generator>& generator, c10::DeviceIndex device);
/// The same for `count` operators, of which the i-th adds i to n.
Value random_state_of(const at::Generator& generator, std::int64_t count, c10::DeviceIndex device);

}  // namespace lockstep::xla
