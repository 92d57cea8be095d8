// What comm itself needs of a Store beside its public calls.
#pragma once

#include <chrono>
#include <string>

#include <lockstep/comm/store.h>

namespace lockstep::detail {

/// `store` with `prefix` before every key, so that its users are apart from all others. The view of a TCP
/// store has a timeout of its own.
Store scoped(const Store& store, const std::string& prefix);

/// From now on calls of `store` throw Timeout where its server does not answer within `time`. This does not
/// apply to waits, which have a time of their own, nor to stores without a server.
void limit_answers(const Store& store, std::chrono::milliseconds time);

}  // namespace lockstep::detail
