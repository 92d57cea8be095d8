// Source: Documentation/ABI/stable/sysfs-devices-system-cpu and -node of the Linux kernel.
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <tuple>

#include <lockstep/launch/binding.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxProcessors = 1 << 16;

std::string first_line(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

int number_in(const fs::path& file) { return OptionType<int>::parse(first_line(file)).value_or(0); }

// The processors that the kernel lists in `file`; the first one stands for the group.
int group_in(const fs::path& file, int fallback) {
  const auto members = parse_processors(first_line(file));
  return members && !members->empty() ? members->front() : fallback;
}

std::map<int, int> nodes_of_processors(const fs::path& system) {
  std::map<int, int> nodes;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(system / "node", failure)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    const auto number = OptionType<int>::parse(name.substr(4));
    if (!number) continue;
    for (const int processor : parse_processors(first_line(entry.path() / "cpulist")).value_or({}))
      nodes[processor] = *number;
  }
  return nodes;
}

int complex_of(const fs::path& processor, int fallback) {
  int level = 0, complex = fallback;
  std::error_code failure;
  for (const auto& cache : fs::directory_iterator(processor / "cache", failure)) {
    const int own_level = number_in(cache.path() / "level");
    if (own_level <= level) continue;
    level = own_level;
    complex = group_in(cache.path() / "shared_cpu_list", fallback);
  }
  return complex;
}

}  // namespace

std::vector<int> usable_processor_numbers() {
  std::vector<cpu_set_t> mask(kMaxProcessors / CPU_SETSIZE);
  const auto bytes = mask.size() * sizeof(cpu_set_t);
  std::vector<int> numbers;
  if (::sched_getaffinity(0, bytes, mask.data()) != 0) return numbers;
  for (int processor = 0; processor < kMaxProcessors; ++processor)
    if (CPU_ISSET_S(static_cast<std::size_t>(processor), bytes, mask.data())) numbers.push_back(processor);
  return numbers;
}

std::vector<CpuCore> cores_of(const std::vector<int>& processors, const fs::path& system) {
  const auto nodes = nodes_of_processors(system);
  std::map<int, CpuCore> by_first;
  for (const int processor : processors) {
    const auto folder = system / "cpu" / ("cpu" + std::to_string(processor));
    auto& core = by_first[group_in(folder / "topology" / "core_cpus_list", processor)];
    core.processors.push_back(processor);
    core.socket = number_in(folder / "topology" / "physical_package_id");
    const auto node = nodes.find(processor);
    core.node = node == nodes.end() ? 0 : node->second;
    core.complex = complex_of(folder, core.socket);
  }
  std::vector<CpuCore> cores;
  for (auto& [first, core] : by_first) cores.push_back(std::move(core));
  std::ranges::stable_sort(
      cores, {}, [](const CpuCore& core) { return std::tuple(core.socket, core.node, core.complex); });
  return cores;
}

}  // namespace lockstep
