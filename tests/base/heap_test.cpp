// What malloc keeps of freed memory, by the pages that the system has to clear again. In a process of its own
// each: the settings stay.
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>

#include <lockstep/base/env.h>

#include "base/system.h"

#ifdef __GLIBC__
#include <malloc.h>

namespace lockstep {
namespace {

constexpr std::size_t kBlockBytes = 10 << 20;
// Together more than the 64 MiB that glibc may have come to keep after what other tests have freed.
constexpr std::size_t kBlocks = 8;
constexpr long kPages = kBlocks * kBlockBytes / 4096;  // of all blocks, at least

// As a step of training does.
void allocate_and_free() {
  std::array<void*, kBlocks> blocks{};
  for (auto& block : blocks) {
    block = std::malloc(kBlockBytes);
    std::memset(block, 1, kBlockBytes);
    asm volatile("" : : "r"(block) : "memory");
  }
  for (auto* const block : blocks) std::free(block);
}

long faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Whether a process that has called `prepare` is given new pages for what it has freed.
bool asks_again(const std::function<void()>& prepare) {
  const auto child = ::fork();
  if (child == 0) {
    prepare();
    for (int i = 0; i < 3; ++i) allocate_and_free();
    const auto before = faults();
    allocate_and_free();
    ::_exit(faults() - before > kPages / 2 ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) == 1;
}

TEST(Heap, KeepsWhatIsFreed) {
  EXPECT_TRUE(asks_again([] {}));
  EXPECT_FALSE(asks_again([] { disable_heap_trimming(); }));
}

TEST(Heap, GivesBackWhateverIsAskedBesides) {
  EXPECT_TRUE(asks_again([] {
    disable_heap_trimming();
    return_freed_memory();
  }));
  EXPECT_TRUE(asks_again([] {
    return_freed_memory();
    disable_heap_trimming();
  }));
}

TEST(Heap, LeavesMallocToTheEnvironment) {
  EXPECT_TRUE(asks_again([] {
    env::set("MALLOC_ARENA_MAX", "2");
    disable_heap_trimming();
  }));
}

}  // namespace
}  // namespace lockstep
#endif
