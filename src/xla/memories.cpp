#include "xla/memories.h"

#include "xla/capture.h"
#include "xla/device.h"

namespace lockstep::xla {

// Never destroyed: tensors in globals end after it would.
Memories& Memories::all() {
  static auto* const made = new Memories;
  return *made;
}

Memory* Memories::make(Shape shape, c10::DeviceIndex device) {
  const std::lock_guard lock(device_mutex());
  auto* const memory = new Memory{.shape = std::move(shape), .device = device, .id = next_id_++};
  living_.emplace(memory->id, memory);
  return memory;
}

void Memories::release(Memory* memory) {
  const std::lock_guard lock(device_mutex());
  set(*memory, {});
  living_.erase(memory->id);
  delete memory;
}

void Memories::set(Memory& memory, Value value) {
  const std::lock_guard lock(device_mutex());
  if (auto* const capture = current_capture()) capture->note_write(memory);
  if (memory.value && memory.value.node->buffer) --memory.value.node->holders;
  const bool is_pending = value && !value.node->buffer;
  if (value && value.node->buffer) ++value.node->holders;
  if (is_pending)
    pending_[memory.id] = &memory;
  else
    pending_.erase(memory.id);
  memory.value = std::move(value);
}

Memory* Memories::find(std::int64_t id) const {
  const auto found = living_.find(id);
  return found == living_.end() ? nullptr : found->second;
}

std::vector<Memory*> Memories::pending(c10::DeviceIndex device) const {
  std::vector<Memory*> found;
  for (const auto& [id, memory] : pending_)
    if (memory->device == device) found.push_back(memory);
  return found;
}

}  // namespace lockstep::xla
