// How busy this machine is.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

namespace detail {

/// Time that all processors together have spent, in ticks of the kernel.
struct CpuTimes {
  double total = 0;
  double busy = 0;
};

/// Of the text of /proc/stat; zeros where it is not that.
LOCKSTEP_API CpuTimes cpu_times_of(std::string_view proc_stat);

/// Percent of that time that processors worked between the two, to a decimal; 0 where none has passed.
LOCKSTEP_API double cpu_percent(const CpuTimes& before, const CpuTimes& now);

/// Used memory and used swap space, in percent to a decimal, of the text of /proc/meminfo.
LOCKSTEP_API std::pair<double, double> memory_percent_of(std::string_view proc_meminfo);

}  // namespace detail

/// Reads, as psutil does, what the kernel says of the whole machine.
class LOCKSTEP_API CpuStats {
 public:
  /// The first read() is about the time from now on.
  CpuStats();

  /// "cpu_percent", the work of all processors since the last call, "cpu_vm_percent", the memory that is not
  /// available, and "cpu_swap_percent", the swap space in use; nothing where there is no /proc. Does not
  /// wait.
  std::vector<std::pair<std::string, double>> read();

 private:
  detail::CpuTimes last_;
};

}  // namespace lockstep
