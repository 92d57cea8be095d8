// The memory of the device's tensors, of which the graph asks what is yet to be computed.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include <c10/core/Device.h>

#include "xla/graph.h"

namespace lockstep::xla {

/// What a storage holds.
struct Memory {
  Value value = {};  ///< nothing: it was never written
  Shape shape = {};  ///< one dimension
  c10::DeviceIndex device = 0;
  std::int64_t id = 0;
};

/// Those of all storages that live. Thread-safe, by device_mutex().
class Memories {
 public:
  static Memories& all();

  Memory* make(Shape shape, c10::DeviceIndex device);
  void release(Memory* memory);
  void set(Memory& memory, Value value);
  /// Null where its storage is gone.
  Memory* find(std::int64_t id) const;
  /// Those of a device that hold what has not been computed, in the order in which they were made.
  std::vector<Memory*> pending(c10::DeviceIndex device) const;

 private:
  std::unordered_map<std::int64_t, Memory*> living_;
  std::map<std::int64_t, Memory*> pending_;
  std::int64_t next_id_ = 0;
};

}  // namespace lockstep::xla
