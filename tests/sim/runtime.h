// The state of all simulated devices of this process.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/host_copies.h"
#include "sim/memory.h"
#include "sim/races.h"
#include "sim/sim.h"
#include "sim/streams.h"

namespace lockstep::sim {

struct Runtime {
  explicit Runtime(const Options& with)
      : options(with), space(with.bytes_per_device * static_cast<std::size_t>(with.devices)) {}

  Options options;
  AddressSpace space;

  std::mutex mutex;  ///< guards what follows
  std::map<std::uintptr_t, Block> blocks;
  FreeBlocks free_blocks;
  std::array<DeviceMemory, kMaxDevices> memory{};
  std::array<std::unique_ptr<StreamThread>, kMaxStreams> streams;
  VectorClock host{};  ///< what the host knows to be over
  HostCopies host_copies;
  std::shared_ptr<Capture> capture;  ///< the one that is under way
  int captures = 0;
  Counters counters;
  std::optional<std::uint64_t> wait_to_drop;
  std::uint64_t place_to_drop = 0;
  std::map<std::uint64_t, std::string> wait_places;
  std::optional<std::vector<Issued>> trace;
  std::vector<std::string> reports;
  std::set<std::string> known_reports;
  std::vector<std::string> host_syncs;
  std::string failure;
};

/// @throws c10::Error before install()
Runtime& runtime();
bool is_installed();

// With Runtime::mutex held.
StreamThread& stream_thread(int stream);
void report(std::string text);
/// The block that holds the byte at `address`, or null.
Block* find_block(std::uintptr_t address);

/// What makes LibTorch see the devices; once.
void install_backend();

}  // namespace lockstep::sim
