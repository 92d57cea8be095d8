// Store: a small table of keys that all ranks see; how they find each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep {

namespace detail {
struct StoreImpl;
}

/// A table of byte strings shared by ranks. A cheap value: copies share the connection, on which
/// one call runs at a time, though waiting for a key holds up no other. Every call @throws CommError when the
/// server is gone, Timeout when it does not answer within the time of the store, or of the call.
class LOCKSTEP_API Store {
 public:
  /// For the makers below.
  explicit Store(std::shared_ptr<detail::StoreImpl> impl);

  /// Sets `key`. Blocks for one round trip.
  /// @throws ConfigError when the key or the value has more than 8 MiB
  void set(const std::string& key, const std::string& value);

  /// Blocks until `key` is set and returns its value.
  /// @throws Timeout naming the key
  std::string get(const std::string& key, std::chrono::milliseconds timeout);

  /// Adds `delta` to the number under `key`, 0 when unset, and returns the sum. Atomic. Where the key holds
  /// something else, the store of a TCP server cannot be used any more.
  std::int64_t add(const std::string& key, std::int64_t delta);

  /// Blocks until all `keys` are set; false when `timeout` passed before.
  [[nodiscard]] bool wait(std::span<const std::string> keys, std::chrono::milliseconds timeout);

  /// Whether `key` is set. Blocks for one round trip.
  bool check(const std::string& key);

  /// For backends: what implements this store.
  detail::StoreImpl& impl() const { return *impl_; }

 private:
  std::shared_ptr<detail::StoreImpl> impl_;
};

/// A store for the threads of this process.
LOCKSTEP_API Store make_hash_store();

/// Where a TCP store listens, and who serves it.
struct TcpStoreOptions {
  std::string address = "127.0.0.1";  ///< host name or address of the serving rank
  int port = 0;                       ///< TCP port; 0 only for the server: any free one
  bool is_server = false;             ///< whether this process serves
  std::optional<int> listen_fd = {};  ///< server only: a socket that listens already; taken over
  /// for finding the server, and for each of its answers
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// A store served by one process over TCP. Blocks until the server answers. The server lives as long
/// as the last copy of its store.
/// @throws Timeout naming address, port and what the last attempt said; CommError where it serves, naming a
///   taken port, or an address that does not lead back here; ConfigError for a port out of range
LOCKSTEP_API Store make_tcp_store(const TcpStoreOptions& options);

/// A store in the file `path`, which processes on all hosts that see it share; it is created when it is
/// not there and removed when `num_ranks` processes have used and left it. Source: c10d's FileStore.
/// @throws ConfigError when the file cannot be created, or exists and is no store
LOCKSTEP_API Store make_file_store(const std::filesystem::path& path, int num_ranks);

/// The port that the store's server listens on; 0 for a store without one.
LOCKSTEP_API int store_port(const Store& store);

}  // namespace lockstep
