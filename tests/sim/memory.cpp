#include "sim/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include <c10/util/Exception.h>

#include "sim/capture.h"
#include "sim/runtime.h"

namespace lockstep::sim {
namespace {

constexpr std::size_t kRounding = 512;                              // bytes
constexpr auto kNever = std::numeric_limits<std::uint64_t>::max();  // in the life of a graph

// What others than the stream of a block have to do with it is over for that stream.
bool is_free_for_reuse(const Block& block) {
  const auto& clock = stream_thread(block.stream).clock;
  const auto& host = runtime().host;
  return std::ranges::all_of(block.last_uses, [&](const auto& use) {
    const auto [stream, number] = use;
    return clock[stream] >= number || host[stream] >= number;
  });
}

FreeBlocks::Sizes& free_like(const Block& block) {
  return runtime().free_blocks.by_place[{block.stream, block.graph}];
}

// The smallest that is large enough, and not much too large; it is no longer free then.
Block* take_free(std::size_t bytes, int stream, int graph) {
  auto& all = runtime();
  auto& sizes = all.free_blocks.by_place[{stream, graph}];
  for (auto each = sizes.lower_bound({bytes, 0}); each != sizes.end() && each->first <= 2 * bytes; ++each) {
    auto& block = all.blocks.at(each->second);
    if (!is_free_for_reuse(block)) continue;
    sizes.erase(each);
    return &block;
  }
  return nullptr;
}

Block& add_segment(std::size_t bytes, std::size_t asked, int device) {
  auto& all = runtime();
  auto& memory = all.memory[device];
  const auto capacity = all.options.bytes_per_device;
  TORCH_CHECK_WITH(OutOfMemoryError, memory.reserved_bytes + bytes <= capacity, "sim:", device,
                   " is out of memory. Tried to allocate ", asked, " bytes; ", memory.reserved_bytes, " of ",
                   capacity, " bytes are reserved");
  const auto begin = all.space.begin() + device * capacity + memory.reserved_bytes;
  memory.reserved_bytes += bytes;
  ++all.counters.segments;
  return all.blocks.emplace(begin, Block{.begin = begin, .bytes = bytes, .device = device}).first->second;
}

// Makes the bytes NaN in the order of the block's stream.
void poison(const Block& block, bool frees) {
  auto& all = runtime();
  auto* const to = all.space.for_kernels(reinterpret_cast<void*>(block.begin));
  Kernel kernel{.op = frees ? "the free of the memory" : "the allocation of the memory",
                .spans = {{.begin = block.begin, .end = block.begin + block.bytes, .is_written = true}},
                .body = [to, bytes = block.bytes](const Launch&) { std::memset(to, 0xff, bytes); },
                .frees = frees};
  if (block.graph != 0) {
    if (is_being_captured(block.stream, block.graph)) all.capture->add(block.stream, std::move(kernel));
  } else {
    issue(block.stream, kernel);
    --all.counters.kernels;
  }
}

class SimAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device(kDeviceType, static_cast<c10::DeviceIndex>(current_device()));
    if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, device};
    void* const memory = sim::allocate(bytes, device.index());
    return {memory, memory, &free_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "sim: the host cannot copy memory of a device");
  }
  bool initialized() override { return is_installed(); }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& memory, c10::Stream s) override {
    if (memory.get() != nullptr) record_stream(memory.get(), stream_id(s));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(runtime().mutex);
    const auto& memory = runtime().memory[device];
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = static_cast<std::int64_t>(memory.allocated_bytes);
    stats.allocated_bytes[0].peak = static_cast<std::int64_t>(memory.peak_allocated_bytes);
    stats.reserved_bytes[0].current = stats.reserved_bytes[0].peak =
        static_cast<std::int64_t>(memory.reserved_bytes);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(runtime().mutex);
    auto& memory = runtime().memory[device];
    memory.peak_allocated_bytes = memory.allocated_bytes;
  }
};

}  // namespace

AddressSpace::AddressSpace(std::size_t bytes) : bytes_(bytes) {
  const int file = ::memfd_create("sim", MFD_CLOEXEC);
  TORCH_CHECK(file >= 0 && ::ftruncate(file, static_cast<off_t>(bytes)) == 0,
              "sim: no memory for the devices");
  void* const faulting = ::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
  void* const usable = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  TORCH_CHECK(faulting != MAP_FAILED && usable != MAP_FAILED, "sim: no address space for the devices");
  faulting_ = reinterpret_cast<std::uintptr_t>(faulting);
  usable_ = reinterpret_cast<std::uintptr_t>(usable);
}

bool AddressSpace::holds(const void* address) const {
  return reinterpret_cast<std::uintptr_t>(address) - faulting_ < bytes_;
}

char* AddressSpace::for_kernels(const void* address) const {
  return reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(address) - faulting_ + usable_);
}

void* allocate(std::size_t asked, int device) {
  auto& all = runtime();
  const auto bytes = std::max(kRounding, (asked + kRounding - 1) / kRounding * kRounding);
  const int stream = current_stream(device);
  const std::lock_guard lock(all.mutex);
  ++all.counters.allocations;
  const int graph = graph_of(stream);
  auto* block = take_free(bytes, stream, graph);
  const bool is_poisoned = block != nullptr && block->last_uses.empty();
  if (block == nullptr) {
    block = &add_segment(bytes, asked, device);
    block->stream = stream;
    block->graph = graph;
  }
  block->is_live = true;
  block->last_uses.clear();
  if (!is_poisoned) poison(*block, /*frees=*/false);
  auto& memory = all.memory[device];
  memory.allocated_bytes += block->bytes;
  memory.peak_allocated_bytes = std::max(memory.peak_allocated_bytes, memory.allocated_bytes);
  return reinterpret_cast<void*>(block->begin);
}

// Where other streams were named, poison has to wait until they are over, and so comes with the next
// allocation.
void free_block(void* memory) {
  auto& all = runtime();
  const std::lock_guard lock(all.mutex);
  auto& block = *find_block(reinterpret_cast<std::uintptr_t>(memory));
  for (const int other : block.other_streams)
    block.last_uses.emplace_back(other, block.graph != 0 ? kNever : stream_thread(other).clock[other]);
  if (std::exchange(block.other_streams, {}).empty()) poison(block, /*frees=*/true);
  block.is_live = false;
  free_like(block).insert({block.bytes, block.begin});
  all.memory[block.device].allocated_bytes -= block.bytes;
}

void record_stream(void* memory, int stream) {
  const std::lock_guard lock(runtime().mutex);
  auto* const block = find_block(reinterpret_cast<std::uintptr_t>(memory));
  if (block != nullptr && block->stream != stream) block->other_streams.insert(stream);
}

void release_graph_memory(int graph) {
  auto& all = runtime();
  for (auto& [_, block] : all.blocks) {
    if (block.graph != graph) continue;
    const bool is_free = free_like(block).erase({block.bytes, block.begin}) > 0;
    block.graph = 0;
    if (is_free) free_like(block).insert({block.bytes, block.begin});
    block.last_uses.clear();
  }
}

c10::DeviceAllocator& device_allocator() {
  static SimAllocator allocator;
  return allocator;
}

}  // namespace lockstep::sim
