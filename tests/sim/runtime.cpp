#include "sim/runtime.h"

#include <c10/util/Exception.h>
#include <cstdio>

namespace lockstep::sim {
namespace {

Runtime* the_runtime = nullptr;  // never destroyed: the threads of streams do not end

}  // namespace

Runtime& runtime() {
  TORCH_CHECK(the_runtime != nullptr, "sim: install() was not called");
  return *the_runtime;
}

bool is_installed() { return the_runtime != nullptr; }

StreamThread& stream_thread(int stream) {
  auto& thread = runtime().streams[stream];
  if (!thread) thread = std::make_unique<StreamThread>(stream, runtime().options);
  return *thread;
}

void report(std::string text) {
  auto& all = runtime();
  if (!all.known_reports.insert(text).second) return;
  if (all.options.prints_reports) std::fprintf(stderr, "sim: %s\n", text.c_str());
  all.reports.push_back(std::move(text));
}

Block* find_block(std::uintptr_t address) {
  auto& blocks = runtime().blocks;
  auto found = blocks.upper_bound(address);
  if (found == blocks.begin()) return nullptr;
  auto& block = (--found)->second;
  return address < block.begin + block.bytes ? &block : nullptr;
}

void install(const Options& options) {
  TORCH_CHECK(the_runtime == nullptr, "sim: install() was called twice");
  TORCH_CHECK(options.devices >= 1 && options.devices <= kMaxDevices, "sim: expected 1 to ", kMaxDevices,
              " devices; got ", options.devices);
  the_runtime = new Runtime(options);
  install_backend();
}

void set_delays(std::uint64_t seed, std::chrono::microseconds longest) {
  auto& all = runtime();
  for (int device = 0; device < all.options.devices; ++device) wait_for_device(device);
  const std::lock_guard lock(all.mutex);
  all.options.seed = seed;
  all.options.longest_delay = longest;
  for (const auto& stream : all.streams)
    if (stream) stream->set_delays(seed, longest);
}

Counters counters() {
  const std::lock_guard lock(runtime().mutex);
  return runtime().counters;
}

void reset_counters() {
  const std::lock_guard lock(runtime().mutex);
  runtime().counters = {};
  runtime().wait_places.clear();
}

void drop_wait(std::uint64_t number) {
  const std::lock_guard lock(runtime().mutex);
  runtime().wait_to_drop = number;
}

std::vector<WaitPlace> wait_places() {
  const std::lock_guard lock(runtime().mutex);
  std::vector<WaitPlace> places;
  for (const auto& [id, text] : runtime().wait_places) places.push_back({.id = id, .text = text});
  return places;
}

void drop_waits_of(std::uint64_t place) {
  const std::lock_guard lock(runtime().mutex);
  runtime().place_to_drop = place;
}

void begin_trace() {
  const std::lock_guard lock(runtime().mutex);
  runtime().trace.emplace();
}

std::vector<Issued> take_trace() {
  const std::lock_guard lock(runtime().mutex);
  return std::exchange(runtime().trace, std::nullopt).value_or(std::vector<Issued>());
}

bool may_overlap(const Issued& a, const Issued& b) {
  return a.place != b.place && a.before[b.place] < b.number && b.before[a.place] < a.number;
}

std::vector<std::string> take_host_syncs() {
  const std::lock_guard lock(runtime().mutex);
  return std::exchange(runtime().host_syncs, {});
}

std::vector<std::string> take_reports() {
  const std::lock_guard lock(runtime().mutex);
  runtime().known_reports.clear();
  return std::exchange(runtime().reports, {});
}

}  // namespace lockstep::sim
