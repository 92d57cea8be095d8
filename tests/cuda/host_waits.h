// How often the host waits for a GPU, by CUPTI's callbacks, for which a program need not be linked or started
// in another way: beside what lockstep_sim counts.
#pragma once

#include <map>
#include <string>

namespace lockstep::detail {

/// Counts from now on, in all threads, the calls of CUDA's runtime that return when the device has done what
/// was issued. One at a time; CUPTI has one subscriber, so nobody may profile meanwhile.
class HostWaits {
 public:
  /// @throws Error where CUPTI is not there or does not start; it comes with a LibTorch for CUDA
  HostWaits();
  ~HostWaits();
  HostWaits(const HostWaits&) = delete;
  HostWaits& operator=(const HostWaits&) = delete;

  /// Takes how often each was called, by name: "cudaStreamSynchronize".
  std::map<std::string, int> take();

 private:
  void* subscriber_ = nullptr;
};

}  // namespace lockstep::detail
