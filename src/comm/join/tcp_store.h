// TCP stores as the rest of comm needs them.
#pragma once

#include <chrono>
#include <string>

#include <lockstep/comm/store.h>

namespace lockstep::detail {

/// As make_tcp_store(), in the way of Python's torch.distributed: the server waits until `world_size`
/// processes, itself included, have connected.
Store make_pytorch_store(const TcpStoreOptions& options, int world_size);

/// Whether a store of c10d answers there within `patience`.
bool is_store_server(const std::string& address, int port, std::chrono::milliseconds patience);

/// From now on calls of `store` throw Timeout where its server does not answer within `time`. Not of waits,
/// which have a time of their own, and stores without a server.
void limit_answers(const Store& store, std::chrono::milliseconds time);

}  // namespace lockstep::detail
