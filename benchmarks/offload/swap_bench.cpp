// A walk over a swap file of 1 GiB that reads, changes and writes back all of it, beside what the same file
// system takes to write and to read as much one block after the other, as dd does with oflag=direct and
// iflag=direct.
//
// Usage: bench_swap RESULTS FOLDER
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>

#include <lockstep/base/unique_fd.h>

#include "offload/swap_file.h"
#include "offload/swap_folder.h"
#include "offload/swap_stream.h"
#include "results.h"

namespace {

namespace offload = lockstep::offload;

constexpr std::uint64_t kBytes = 1 << 30;
constexpr std::uint64_t kRegion = 24 << 20;  // a parameter and its two moments
constexpr std::size_t kBlock = 1 << 20;

template <class Body>
double ns_of(Body body) {
  const auto start = bench::now_ns();
  body();
  return static_cast<double>(bench::now_ns() - start);
}

/// What dd would read and write.
class RawFile {
 public:
  explicit RawFile(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600)), buffer_(kBlock) {
    if (!fd_ || ::posix_fallocate(fd_.get(), 0, kBytes) != 0)
      throw std::runtime_error("no direct file of 1 GiB at " + path.string());
  }
  void write() const {
    for (std::uint64_t at = 0; at < kBytes; at += kBlock)
      check(::pwrite(fd_.get(), buffer_.bytes().data(), kBlock, static_cast<off_t>(at)));
  }
  void read() const {
    for (std::uint64_t at = 0; at < kBytes; at += kBlock)
      check(::pread(fd_.get(), buffer_.bytes().data(), kBlock, static_cast<off_t>(at)));
  }

 private:
  static void check(ssize_t moved) {
    if (moved != static_cast<ssize_t>(kBlock)) throw std::runtime_error("a raw transfer failed");
  }

  lockstep::UniqueFd fd_;
  offload::AlignedBuffer buffer_;
};

offload::SwapLayout layout() {
  offload::SwapLayout layout;
  const std::array<std::uint64_t, 3> parts{kRegion / 3, kRegion / 3, kRegion / 3};
  while (layout.bytes() + kRegion <= kBytes) layout.add(parts);
  const std::array<std::uint64_t, 1> rest{kBytes - layout.bytes()};
  layout.add(rest);
  return layout;
}

// What an optimizer does at least: it reads and writes each number.
void decay(std::size_t, std::span<const std::span<std::byte>> parts) {
  for (const auto part : parts) {
    auto* const numbers = reinterpret_cast<float*>(part.data());
    for (std::size_t i = 0; i < part.size() / sizeof(float); ++i) numbers[i] *= 0.999F;
  }
}

void measure_stream(const bench::Results& results, const offload::SwapFolder& folder,
                    offload::EngineKind engine) {
  offload::SwapFile file(folder, "swap", kBytes, {.engine = engine});
  offload::SwapStream stream(file, layout());
  const std::string name(file.engine());
  results.add(name + "/fill", ns_of([&] { stream.run(decay, offload::SwapPass::kFill); }));
  results.add(name + "/update", ns_of([&] { stream.run(decay); }));
  results.add(name + "/read", ns_of([&] { stream.run(decay, offload::SwapPass::kRead); }));
}

void measure(const bench::Results& results, const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  const offload::SwapFolder folder({.directory = directory});
  const RawFile raw(folder.path() / "raw");
  raw.write();  // as the swap file: overwritten, not written first
  const double write_ns = ns_of([&] { raw.write(); });
  const double read_ns = ns_of([&] { raw.read(); });
  results.add("raw/write", write_ns);
  results.add("raw/read", read_ns);
  results.add("raw/read_and_write", read_ns + write_ns);
  for (const auto engine : {offload::EngineKind::kIoUring, offload::EngineKind::kThreads})
    measure_stream(results, folder, engine);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  measure(bench::Results(argv[1]), argv[2]);
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << std::endl;
  return 1;
}
