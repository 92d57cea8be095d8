// What tests of swap files share: each engine, on disk and in memory, past and through the page cache.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "allowed_engines.h"
#include "offload/io_engine.h"
#include "offload/swap_file.h"
#include "offload/swap_folder.h"
#include "support/temporary_folder.h"

namespace lockstep::offload {

/// A folder in /dev/shm, which is tmpfs, removed with all it holds.
class FolderInMemory {
 public:
  FolderInMemory() {
    if (!::mkdtemp(path_.data())) throw std::runtime_error("cannot make a folder in /dev/shm");
  }
  FolderInMemory(const FolderInMemory&) = delete;
  FolderInMemory& operator=(const FolderInMemory&) = delete;
  ~FolderInMemory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path path() const { return path_; }

 private:
  std::string path_ = "/dev/shm/lockstep_tests_XXXXXX";
};

struct SwapCase {
  EngineKind engine;
  bool direct;
  bool in_memory;
};

inline std::ostream& operator<<(std::ostream& out, const SwapCase& way) {
  return out << (way.engine == EngineKind::kThreads ? "threads" : "io_uring")
             << (way.direct ? "_direct" : "_cached") << (way.in_memory ? "_tmpfs" : "_disk");
}

inline std::vector<SwapCase> ways_of(EngineKind engine) {
  return {{engine, true, false}, {engine, false, false}, {engine, true, true}};
}

/// Those that there can be here.
inline std::vector<SwapCase> swap_cases() {
  auto cases = ways_of(EngineKind::kThreads);
  const auto more = uring_is_allowed() ? ways_of(EngineKind::kIoUring) : std::vector<SwapCase>();
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

/// Gives tests a folder for swap files in the way of their case.
class SwapCases : public ::testing::TestWithParam<SwapCase> {
 protected:
  /// Small blocks, so that a transfer has many.
  static SwapOptions options() {
    return {.block_size = 8192, .queue_depth = 3, .engine = GetParam().engine, .direct = GetParam().direct};
  }

  const test::TemporaryFolder on_disk;
  const FolderInMemory in_memory;
  const SwapFolder folder{{.directory = GetParam().in_memory ? in_memory.path() : on_disk.path()}};
};

/// Bytes that differ from place to place, and from `seed` to `seed`.
inline std::byte pattern(std::uint64_t at, unsigned seed) {
  return static_cast<std::byte>((at * 2654435761u + seed * 97u + (at >> 12)) >> 3);
}

inline void fill(std::span<std::byte> bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(i, seed);
}

/// How many bytes are not those of fill().
inline std::size_t differing(std::span<const std::byte> bytes, unsigned seed) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) count += bytes[i] != pattern(i, seed) ? 1 : 0;
  return count;
}

}  // namespace lockstep::offload
