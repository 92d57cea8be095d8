// The TCP stores of this process: one per place where ranks meet, however many communicators meet there.
#pragma once

#include <lockstep/comm/init.h>

namespace lockstep::detail {

/// Room for one more communicator in the store at main_address:main_port. The n-th call of every rank
/// for one address gets the same room, so all ranks must form their communicators in the same order. The
/// first call makes the store as make_tcp_store() does and throws what that throws; the store lives
/// until the process ends, for nobody else could take over the socket of a launcher.
Store shared_store(const CommOptions& options);

}  // namespace lockstep::detail
