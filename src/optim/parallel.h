// Loops on LibTorch's own threads.
#pragma once

#include <cstddef>
#include <functional>

namespace lockstep::detail {

/// Calls body(i) once for each i in [0, count), on at::get_num_threads() threads. Blocks. at::parallel_for
/// would run on one thread here unless this library linked an OpenMP runtime of its own. The body must not
/// throw.
void parallel_for_each(std::size_t count, const std::function<void(std::size_t)>& body);

}  // namespace lockstep::detail
