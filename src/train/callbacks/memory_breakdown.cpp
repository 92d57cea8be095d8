#include "train/callbacks/memory_breakdown.h"

#include <sys/sysinfo.h>

#include <utility>

#include <lockstep/base/process.h>
#include <lockstep/device/cpu_stats.h>

#include "train/callbacks/resident_memory.h"

namespace lockstep::detail {
namespace {

double percent_in_use() {
  for (const auto& [name, percent] : CpuStats().read()) {
    if (name == "cpu_vm_percent") return percent;
  }
  return 0;
}

void print_memory(const TrainContext& context, const char* when) {
  struct sysinfo machine = {};
  ::sysinfo(&machine);
  const auto percent = percent_in_use();
  const auto used = static_cast<double>(machine.totalram) * machine.mem_unit * percent / 100;
  context.print(std::string("Engine ") + when + "\nMA " + gigabytes(resident_bytes()) +
                " GB         Max_MA " + gigabytes(peak_rss_bytes()) + " GB\nCPU Virtual Memory:  used = " +
                gigabytes(static_cast<std::int64_t>(used)) + " GB, percent = " + number_text(percent) + "%");
}

}  // namespace

void MemoryBreakdown::on_train_batch_start(StepContext& step) { print_memory(step, "before forward"); }

void MemoryBreakdown::on_before_backward(StepContext& step, const at::Tensor&) {
  print_memory(step, "after forward");
  print_memory(step, "before backward");
}

void MemoryBreakdown::on_after_backward(StepContext& step) { print_memory(step, "after backward"); }

void MemoryBreakdown::on_before_optimizer_step(StepContext& step) {
  print_memory(step, "before step");
  is_in_step_ = true;
}

void MemoryBreakdown::on_train_batch_end(StepContext& step, const TrainOutput&) {
  if (std::exchange(is_in_step_, false)) print_memory(step, "after step");
}

}  // namespace lockstep::detail
