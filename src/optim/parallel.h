// Loops on LibTorch's own threads.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep::detail {

/// Calls body(i) once for each i in [0, count), on at::get_num_threads() threads. Blocks. at::parallel_for
/// would run on one thread here unless this library linked an OpenMP runtime of its own. The body must not
/// throw.
void parallel_for_each(std::int64_t count, const std::function<void(std::int64_t)>& body);

}  // namespace lockstep::detail
