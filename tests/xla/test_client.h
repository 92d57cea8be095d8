// The client of the plug-in that these tests run on.
#pragma once

#include <memory>
#include <vector>

#include "xla/buffer.h"
#include "xla/client.h"

namespace lockstep::test {

/// Two devices of the CPU, or as many as LOCKSTEP_TEST_PARTITIONS says, which then run each program together.
/// @throws where tools/xla.sh has not fetched the plug-in
std::shared_ptr<const xla::Client> test_client();

/// The array `values`, on the first device.
std::shared_ptr<xla::Buffer> array_of(const std::vector<float>& values);

/// What a flat array of float32 holds.
std::vector<float> values_of(const xla::Buffer& buffer, std::size_t count);

/// StableHLO that multiplies `count` numbers with 3; it may overwrite them where `donates`.
std::string triple_text(int count, bool donates = false);

}  // namespace lockstep::test
