#include <lockstep/launch/binding.h>

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <tuple>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "base/visible_devices.h"

namespace lockstep {
namespace {

constexpr int kMaxProcessor = 65'535;
constexpr const char* kAcceptedProcessors = "numbers and ranges of processors, such as 0-3,8";

using Cores = std::vector<CpuCore>;

// The equal share of `rank` in `count` things; where there are fewer things than `ranks`, several ranks share
// one.
struct Share {
  std::size_t begin;
  std::size_t size;
};

Share share_of(std::size_t count, int rank, int ranks) {
  const auto all = static_cast<std::size_t>(ranks);
  return {.begin = static_cast<std::size_t>(rank) * count / all,
          .size = std::max<std::size_t>(1, count / all)};
}

template <class T>
std::vector<T> part_of(const std::vector<T>& things, const Share& share) {
  const auto begin = things.begin() + static_cast<std::ptrdiff_t>(share.begin);
  return {begin, begin + static_cast<std::ptrdiff_t>(share.size)};
}

std::vector<Cores> grouped(const Cores& cores, const std::function<int(const CpuCore&)>& group_of) {
  std::vector<Cores> groups;
  for (const auto& core : cores) {
    if (groups.empty() || group_of(groups.back().back()) != group_of(core)) groups.emplace_back();
    groups.back().push_back(core);
  }
  return groups;
}

RankBinding bind_to(const Cores& cores, int sharing = 1) {
  RankBinding binding{.threads = std::max(1, static_cast<int>(cores.size()) / sharing)};
  for (const auto& core : cores)
    binding.processors.insert(binding.processors.end(), core.processors.begin(), core.processors.end());
  return binding;
}

// The group of a rank among `groups` groups, and how many ranks share it.
struct GroupShare {
  std::size_t group;
  int number;  ///< among those ranks
  int ranks;
};

GroupShare seat_of(std::size_t groups, int rank, int ranks) {
  const auto group_of = [&](int other) { return share_of(groups, other, ranks).begin; };
  GroupShare seat{.group = group_of(rank), .number = 0, .ranks = 0};
  for (int other = 0; other < ranks; ++other) {
    if (group_of(other) != seat.group) continue;
    seat.number += other < rank ? 1 : 0;
    ++seat.ranks;
  }
  return seat;
}

std::vector<Cores> groups_of(const Cores& cores, BindingKind kind) {
  if (kind == BindingKind::kSocket) return grouped(cores, &CpuCore::socket);
  if (kind == BindingKind::kCoreComplex) return grouped(cores, &CpuCore::complex);
  return grouped(cores, &CpuCore::node);
}

RankBinding bind_rank(const Cores& cores, BindingKind kind, int rank, int ranks) {
  if (kind == BindingKind::kCores) return bind_to(part_of(cores, share_of(cores.size(), rank, ranks)));
  const auto groups = groups_of(cores, kind);
  const auto seat = seat_of(groups.size(), rank, ranks);
  const auto& group = groups[seat.group];
  if (kind != BindingKind::kExclusive) return bind_to(group, seat.ranks);
  return bind_to(part_of(group, share_of(group.size(), seat.number, seat.ranks)));
}

void check_listed(const Cores& cores, const std::vector<int>& listed) {
  std::set<int> usable;
  for (const auto& core : cores) usable.insert(core.processors.begin(), core.processors.end());
  for (const int processor : listed)
    if (!usable.contains(processor))
      throw ConfigError(
          "run", {.what = "--bind-core-list",
                  .expected = "processors that this process may use, " + std::to_string(usable.size()) +
                              " up to number " + std::to_string(usable.empty() ? -1 : *usable.rbegin()),
                  .got = std::to_string(processor)});
}

RankBinding bind_to_listed(const std::vector<int>& listed, int rank, int ranks) {
  RankBinding binding{.processors = part_of(listed, share_of(listed.size(), rank, ranks))};
  binding.threads = static_cast<int>(binding.processors.size());
  return binding;
}

void warn_where_shared(std::size_t count, int ranks) {
  if (count >= static_cast<std::size_t>(ranks)) return;
  log_warning(std::to_string(ranks) + " ranks share " + std::to_string(count) +
              (count == 1 ? " core" : " cores") + " of this host");
}

}  // namespace

std::span<const OptionName<BindingKind>> option_names(BindingKind) {
  static constexpr OptionName<BindingKind> kNames[] = {{"node", BindingKind::kNode},
                                                       {"socket", BindingKind::kSocket},
                                                       {"exclusive", BindingKind::kExclusive},
                                                       {"core-complex", BindingKind::kCoreComplex}};
  return kNames;
}

Expected<std::vector<int>> parse_processors(std::string_view text) {
  std::vector<int> processors;
  std::vector<bool> seen(kMaxProcessor + 1);
  while (!text.empty()) {
    const auto item = text.substr(0, text.find(','));
    const auto dash = item.find('-');
    const auto first = OptionType<int>::parse(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : OptionType<int>::parse(item.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > kMaxProcessor)
      return Unexpected{kAcceptedProcessors};
    for (int processor = *first; processor <= *last; ++processor) {
      if (seen[static_cast<std::size_t>(processor)])
        return Unexpected{std::string(kAcceptedProcessors) + ", each once"};
      seen[static_cast<std::size_t>(processor)] = true;
      processors.push_back(processor);
    }
    text.remove_prefix(std::min(text.size(), item.size() + 1));
  }
  if (processors.empty()) return Unexpected{kAcceptedProcessors};
  return processors;
}

std::vector<RankBinding> plan_bindings(const std::vector<CpuCore>& cores, const BindingOptions& options,
                                       int ranks) {
  const auto& listed = options.processors;
  std::vector<RankBinding> bindings;
  if (options.kind == BindingKind::kNone || cores.empty()) return bindings;
  check_listed(cores, listed);
  warn_where_shared(listed.empty() ? cores.size() : listed.size(), ranks);
  for (int rank = 0; rank < ranks; ++rank)
    bindings.push_back(listed.empty() ? bind_rank(cores, options.kind, rank, ranks)
                                      : bind_to_listed(listed, rank, ranks));
  return bindings;
}

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

int usable_nvidia_devices() { return static_cast<int>(detail::visible_nvidia_devices().size()); }

int usable_processors() {
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof(mask), &mask) == 0) return CPU_COUNT(&mask);
  return static_cast<int>(std::thread::hardware_concurrency());  // more processors than the mask holds
}

}  // namespace lockstep
