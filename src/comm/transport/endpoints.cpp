#include "comm/transport/endpoints.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <sstream>

#include <lockstep/base/error.h>

#include "comm/waiting.h"

namespace lockstep::detail {

namespace {

constexpr auto kLook = std::chrono::milliseconds(100);  // between two looks whether to stop

bool is_there(Store& store, const std::string& key, std::chrono::milliseconds timeout,
              const std::stop_token& stop) {
  if (!stop.stop_possible()) return store.wait(std::span(&key, 1), timeout);
  const auto deadline = std::chrono::steady_clock::now() + bounded(timeout);
  while (!store.wait(std::span(&key, 1), std::min(kLook, timeout))) {
    if (stop.stop_requested()) throw CommError("comm", {.what = "connecting was given up"});
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
  return true;
}

}  // namespace

using rendezvous::Endpoint;

std::vector<Endpoint> exchange_endpoints(Store& store, const std::string& prefix,
                                         const ConnectOptions& options, const Endpoint& own,
                                         const std::stop_token& stop) {
  const auto key_of = [&](int rank) { return prefix + std::to_string(rank); };
  store.set(key_of(options.rank), own.host + " " + std::to_string(own.port));
  std::vector<Endpoint> endpoints(static_cast<std::size_t>(options.world_size));
  for (int rank = 0; rank < options.world_size; ++rank) {
    auto& endpoint = endpoints[static_cast<std::size_t>(rank)];
    if (rank == options.rank) {
      endpoint = own;
      continue;
    }
    const auto key = key_of(rank);
    if (!is_there(store, key, options.timeout, stop)) {
      const int missing = options.global_rank(rank);
      throw Timeout("comm",
                    {.what = "rank " + std::to_string(missing) + " joined, but does not connect",
                     .where = "rank " + std::to_string(options.global_rank(options.rank)),
                     .hint = "look at its output"},
                    {missing});
    }
    std::istringstream text(store.get(key, options.timeout));
    text >> endpoint.host >> endpoint.port;
  }
  return endpoints;
}

}  // namespace lockstep::detail
