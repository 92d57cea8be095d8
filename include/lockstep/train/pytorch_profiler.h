// PyTorchProfiler: LibTorch's own profiler, Kineto, on the time line of TraceProfiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/profilers/profilers.h>

namespace lockstep {

/// Options of PyTorchProfiler. Names are those of torch.profiler.schedule() where it has them.
struct PyTorchProfilerOptions {
  std::filesystem::path dirpath = {};      ///< as TraceProfilerOptions
  std::string filename = "trace";          ///< as TraceProfilerOptions
  int wait = 5;                            ///< steps of a stage before Kineto is started, >= 0
  int active = 3;                          ///< steps during which it measures, >= 1
  std::size_t events_per_thread = 131072;  ///< as TraceProfilerOptions
};

/// A TraceProfiler that for some steps also has what Kineto measures: LibTorch's operators and, where the
/// rank is on a GPU, kernels, copies, NCCL's collectives, and calls of CUDA, such as those that wait for the
/// device. They lie on tracks of their own, "cuda:0, stream 7", on the clock of the other events, so that
/// merge_traces() puts those of all ranks on one time line. In these steps operators take about a microsecond
/// longer; before and after them nothing is slower than under TraceProfiler.
///
/// A step is what a loop of the Trainer does for a batch of the stage (the sanity check does not count); a
/// program without a Trainer calls step(). One thread per
/// process may measure: there is one Kineto. Nothing is Collective.
/// Lightning: PyTorchProfiler
class LOCKSTEP_API PyTorchProfiler final : public TraceProfiler {
 public:
  /// @throws ConfigError for steps out of range
  explicit PyTorchProfiler(PyTorchProfilerOptions options = {});
  ~PyTorchProfiler() override;

  void record(Action action, Clock::time_point begin, Clock::time_point end) noexcept override;
  void setup(std::string stage, std::optional<int> rank = {}, std::filesystem::path log_dir = {}) override;
  void teardown() override;

  /// A step is over, of the thread that calls. Starts or stops Kineto where that is due; then it blocks, for
  /// the device, too. What LibTorch refuses is a warning, and there are no such events.
  void step() noexcept;

  /// Whether Kineto measures.
  bool is_active() const;

 protected:
  std::vector<OtherEvent> take_other_events() override;

 private:
  struct Window;
  std::unique_ptr<Window> window_;
};

}  // namespace lockstep
