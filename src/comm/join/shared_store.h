// The store in which all ranks of a job meet: the launcher's, or one that rank 0 serves; and its scopes, one
// for each group.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <lockstep/comm/init.h>
#include <lockstep/comm/store.h>

namespace lockstep::detail {

// The stores of this process: one per place where ranks meet, however many communicators
// meet there. It is our launcher's where that serves one, else rank 0's.

/// The scope of one more communicator in the store at main_address:main_port: the newest one, if this rank
/// has not been there, else the next. So all ranks must form their communicators in the same order, and a
/// rank that misses one finds the others at the next attempt. The first call makes the store as
/// make_tcp_store() does and throws what that throws; the store lives until the process ends, for nobody else
/// could take over the socket of a launcher.
Store shared_store(const CommOptions& options);

/// The same scope, for a process that cannot take part; nothing when nobody serves a store there now.
std::optional<Store> shared_store_if_served(const CommOptions& options);

/// Whether `rank` is in the store that `scope` belongs to as a process of torch.distributed, which knows no
/// scopes.
bool is_pytorch_rank(const Store& scope, int rank);

/// The store in which Python's torch.distributed would meet. Collective; one per group, as there.
Store pytorch_store(const CommOptions& options);

// The stores behind these (launcher_store.cpp, tcp_store.cpp).

/// The store that LOCKSTEP_STORE names, where ranks meet at the place that the launcher has told them: at
/// MASTER_ADDR and MASTER_PORT. Nothing where the program meets elsewhere, or nobody serves one. Blocks until
/// the launcher answers.
/// @throws ConfigError when a variable is malformed; Timeout, CommError when the store cannot be reached
std::optional<Store> launcher_store(const CommOptions& options);

/// As make_tcp_store(), in the way of Python's torch.distributed: the server waits until `world_size`
/// processes, itself included, have connected.
Store make_pytorch_store(const TcpStoreOptions& options, int world_size);

/// Whether a store of c10d answers there within `patience`.
bool is_store_server(const std::string& address, int port, std::chrono::milliseconds patience);

}  // namespace lockstep::detail
