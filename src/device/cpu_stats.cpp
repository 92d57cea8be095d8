#include <lockstep/device/cpu_stats.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <sstream>

namespace lockstep {
namespace {

std::string text_of(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

double to_a_decimal(double value) { return std::round(value * 10) / 10; }

double percent(double part, double whole) { return whole > 0 ? to_a_decimal(100 * part / whole) : 0; }

// Of a line `NAME: 123 kB`.
double kilobytes(std::string_view meminfo, std::string_view name) {
  const auto at = meminfo.find(std::string(name) + ":");
  if (at == std::string_view::npos) return 0;
  return std::strtod(std::string(meminfo.substr(at + name.size() + 1, 32)).c_str(), nullptr);
}

}  // namespace

namespace detail {

// The columns: user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice. What a guest takes
// is in user and nice already.
CpuTimes cpu_times_of(std::string_view proc_stat) {
  std::istringstream line{std::string(proc_stat.substr(0, proc_stat.find('\n')))};
  std::string name;
  line >> name;
  if (name != "cpu") return {};
  std::array<double, 8> ticks{};
  for (auto& column : ticks) line >> column;
  CpuTimes times;
  for (const double column : ticks) times.total += column;
  times.busy = times.total - ticks[3] - ticks[4];
  return times;
}

double cpu_percent(const CpuTimes& before, const CpuTimes& now) {
  return percent(std::max(0.0, now.busy - before.busy), now.total - before.total);
}

std::pair<double, double> memory_percent_of(std::string_view proc_meminfo) {
  const double total = kilobytes(proc_meminfo, "MemTotal");
  const double swap = kilobytes(proc_meminfo, "SwapTotal");
  return {percent(total - kilobytes(proc_meminfo, "MemAvailable"), total),
          percent(swap - kilobytes(proc_meminfo, "SwapFree"), swap)};
}

}  // namespace detail

CpuStats::CpuStats() : last_(detail::cpu_times_of(text_of("/proc/stat"))) {}

std::vector<std::pair<std::string, double>> CpuStats::read() {
  const auto now = detail::cpu_times_of(text_of("/proc/stat"));
  if (now.total == 0) return {};
  const auto busy = detail::cpu_percent(std::exchange(last_, now), now);
  const auto [memory, swap] = detail::memory_percent_of(text_of("/proc/meminfo"));
  return {{"cpu_percent", busy}, {"cpu_vm_percent", memory}, {"cpu_swap_percent", swap}};
}

}  // namespace lockstep
