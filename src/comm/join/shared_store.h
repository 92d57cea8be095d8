// The stores of this process: one per place where ranks meet, however many communicators meet there. It is
// our launcher's where that serves one (launcher_store.h), else rank 0's.
#pragma once

#include <optional>

#include <lockstep/comm/init.h>

namespace lockstep::detail {

/// Room for one more communicator in the store at main_address:main_port: the newest one, if this rank has
/// not been there, else the next. So all ranks must form their communicators in the same order, and who
/// misses one finds the others at the next attempt. The first call makes the store as make_tcp_store() does
/// and throws what that throws; the store lives until the process ends, for nobody else could take over the
/// socket of a launcher.
Store shared_store(const CommOptions& options);

/// The same room, for a process that cannot take part; nothing when nobody serves a store there now.
std::optional<Store> shared_store_if_served(const CommOptions& options);

/// Whether `rank` is in the store of `room` as a process of torch.distributed, which never comes to rooms.
bool is_pytorch_rank(const Store& room, int rank);

/// The store in which Python's torch.distributed would meet. Collective; one per group, as there.
Store pytorch_store(const CommOptions& options);

}  // namespace lockstep::detail
