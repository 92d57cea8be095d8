// lockstep-self-test: what `lockstep doctor` starts to learn which LibTorch programs load, and whether ranks
// meet and add tensors. It prints one line of JSON, which src/doctor/programs.h describes. No program for
// users.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <nlohmann/json.hpp>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/version.h>
#include <lockstep/comm/init.h>
#include <lockstep/device/accelerator.h>
#include <lockstep/launch/join.h>

#include "base/read_file.h"
#include "device/cuda_plugin.h"

namespace ls = lockstep;

namespace {

using Json = nlohmann::ordered_json;
using std::chrono::steady_clock;

void print(const Json& json) {
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

// The file that has the function at `address`.
template <class Function>
std::string library_of(Function* address) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(address), &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

Json accelerators() {
  auto all = Json::array();
  std::istringstream names(ls::accelerator_names());
  for (std::string name; std::getline(names >> std::ws, name, ',');) {
    const auto& accelerator = *ls::find_accelerator(name);
    const int count = accelerator.count();
    all.push_back({{"name", name}, {"count", count}, {"absence", count == 0 ? accelerator.absence() : ""}});
  }
  return all;
}

Json cuda_library() {
  const auto file = ls::detail::cuda_plugin_file();
  const auto bytes = ls::read_file(file);
  const auto built = ls::detail::versions_in(bytes.value_or("")).value_or(ls::detail::CudaVersions{});
  return {{"path", file.string()},
          {"is_there", bytes.has_value()},
          {"torch", built.torch},
          {"cuda", built.cuda},
          {"nccl", built.nccl_header}};
}

void print_libraries() {
  using Init = ls::ProcessGroup (*)(const ls::ProcessGroupOptions&);
  print({{"lockstep", ls::kVersion},
         {"lockstep_library", library_of(Init(&ls::init_process_group))},
         {"torch", ls::detail::torch_version()},
         {"torch_library", library_of(&at::globalContext)},
         {"cpu_capability", at::get_cpu_capability()},
         {"accelerators", accelerators()},
         {"cuda_library", cuda_library()}});
}

// Each rank gives 1, 2, ... times its number and one: all sums are known.
void require_sums(const ls::Communicator& group, std::int64_t elements) {
  const auto numbers = at::arange(1, elements + 1, at::kDouble);
  const auto sums = numbers * (group.rank() + 1);
  group.all_reduce(sums);
  const int factor = group.size() * (group.size() + 1) / 2;
  if (!at::equal(sums, numbers * factor))
    throw ls::Error("self-test", {.what = "all_reduce of " + std::to_string(elements) + " numbers",
                                  .expected = "their sums over the ranks",
                                  .got = "others"});
}

// The time of one call in microseconds: the median of `rounds`, after some that do not count.
template <class Call>
double median_us(int rounds, const Call& call) {
  constexpr int kWarmUp = 5;
  for (int i = 0; i < kWarmUp; ++i) call();
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = steady_clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count());
  }
  std::ranges::nth_element(times, times.begin() + rounds / 2);
  return times[static_cast<std::size_t>(rounds / 2)];
}

Json timing(const ls::Communicator& group, std::int64_t bytes, int rounds, const std::string& carried_by) {
  const auto tensor = at::ones({bytes / 4});
  return {{"name", "all_reduce"},
          {"bytes", bytes},
          {"carried_by", carried_by},
          {"rounds", rounds},
          {"median_us", median_us(rounds, [&] { group.all_reduce(tensor, ls::ReduceOp::kAvg); })}};
}

constexpr std::int64_t kSmallBytes = 4 << 10, kLargeBytes = 4 << 20;
constexpr int kSmallRounds = 200, kLargeRounds = 20;

void add_timings(Json& timings, const ls::Communicator& group, const std::string& carried_by) {
  require_sums(group, kLargeBytes / 8);
  timings.push_back(timing(group, kSmallBytes, kSmallRounds, carried_by));
  timings.push_back(timing(group, kLargeBytes, kLargeRounds, carried_by));
}

// Whether this rank has mapped a segment of another one beside its own (src/comm/shared_memory/segment.cpp).
bool shares_memory() {
  std::ifstream lines("/proc/self/maps");
  int segments = 0;
  for (std::string line; std::getline(lines, line);) segments += line.ends_with("/memfd:lockstep (deleted)");
  return segments > 1;
}

void run_group(std::chrono::milliseconds timeout) {
  const auto begin = steady_clock::now();
  auto timings = Json::array();
  Json result;
  bool is_first = false, is_shared = false;
  {
    const auto group = ls::init_process_group({.timeout = timeout});
    group.barrier();
    const auto meet_s = std::chrono::duration<double>(steady_clock::now() - begin).count();
    require_sums(group, kLargeBytes / 8);
    is_first = group.rank() == 0;
    is_shared = shares_memory();
    result = {{"ranks", group.size()}, {"meet_s", meet_s}, {"shares_memory", is_shared}};
    add_timings(timings, group, is_shared ? "shared memory" : "sockets");
  }
  if (is_shared) {
    ls::env::set("LOCKSTEP_SHARED_MEMORY", "0");
    add_timings(timings, ls::init_process_group({.timeout = timeout}), "sockets");
  }
  result["timings"] = timings;
  if (is_first) print(result);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb == "libraries") return ls::run_rank(&print_libraries);
  const long timeout_ms = argc == 3 ? std::strtol(argv[2], nullptr, 10) : 0;
  if (verb != "ranks" || timeout_ms <= 0) {
    std::cerr << "lockstep-self-test: `lockstep doctor` starts this program\n";
    return 2;
  }
  ls::join_launcher();
  return ls::run_rank([&] { run_group(std::chrono::milliseconds(timeout_ms)); });
}
