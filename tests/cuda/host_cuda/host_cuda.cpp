#include <ucontext.h>

#include <array>
#include <memory>
#include <vector>

#include "cuda_runtime.h"

namespace host_cuda {
namespace {

constexpr std::size_t kStackBytes = 64 << 10;
constexpr unsigned kLanes = 32;

struct Fiber {
  ucontext_t context = {};
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  unsigned exchanges = 0;
  std::array<std::uint32_t, 2> given =
      {};  // of this exchange, and of the one before, which others still read
  bool is_done = false;
};

// Of the block that runs.
ucontext_t scheduler;
std::vector<Fiber> fibers;
const std::function<void()>* body;

Fiber& self() { return fibers[threadIdx.x]; }

void enter() {
  (*body)();
  self().is_done = true;
  ::swapcontext(&self().context, &scheduler);
}

void begin(Fiber& fiber) {
  ::getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.exchanges = 0;
  fiber.is_done = false;
  ::makecontext(&fiber.context, &enter, 0);
}

// Each thread that is not over goes to its next meeting, in their order.
bool advance() {
  bool is_any_left = false;
  for (unsigned i = 0; i < fibers.size(); ++i) {
    if (fibers[i].is_done) continue;
    threadIdx.x = i;
    ::swapcontext(&scheduler, &fibers[i].context);
    is_any_left = is_any_left || !fibers[i].is_done;
  }
  return is_any_left;
}

}  // namespace

void run(unsigned blocks, unsigned threads, const std::function<void()>& thread) {
  body = &thread;
  fibers = std::vector<Fiber>(threads);
  gridDim.x = blocks;
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    for (auto& fiber : fibers) begin(fiber);
    while (advance()) {
    }
  }
  fibers.clear();
}

void meet() { ::swapcontext(&self().context, &scheduler); }

std::uint32_t exchanged(std::uint32_t mine, unsigned lane_mask) {
  const auto slot = self().exchanges++ % 2;
  self().given[slot] = mine;
  meet();
  const auto lane = threadIdx.x % kLanes;
  return fibers[threadIdx.x - lane + (lane ^ lane_mask)].given[slot];
}

}  // namespace host_cuda
