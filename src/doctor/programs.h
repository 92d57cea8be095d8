// What only a program that loads LibTorch can tell: the libraries that it finds, its devices, and whether
// ranks meet and add tensors. The program is lockstep-self-test (apps/self_test), which prints JSON.
#pragma once

#include <string>
#include <vector>

#include <lockstep/base/build_facts.h>
#include <lockstep/base/export.h>

#include "doctor/findings.h"

namespace lockstep::doctor {

/// A device that ranks may compute on.
struct AcceleratorFacts {
  std::string name = {};     ///< "cpu", "cuda"
  int count = 0;             ///< devices that a process may use
  std::string absence = {};  ///< where there is none: why
};

/// liblockstep_cuda.so, as far as its file tells.
struct CudaLibraryFacts {
  std::string path = {};  ///< where it is looked for
  bool is_there = false;
  std::string torch = {};  ///< the LibTorch that it was built for: "2.13"; empty: the file does not say
  std::string cuda = {};   ///< and the CUDA: "13"
  std::string nccl = {};   ///< and the NCCL: "2.29.7"
};

struct LibraryFacts {
  bool has_program = true;   ///< lockstep-self-test is there
  std::string failure = {};  ///< why the program does not run, or what it said; empty: all below is known
  std::string lockstep_version = {};
  std::string lockstep_library = {};  ///< path of liblockstep.so
  std::string torch_version = {};     ///< of the LibTorch that is loaded: "2.13"
  std::string torch_library = {};     ///< path of libtorch_cpu.so
  std::string cpu_capability = {};    ///< whose instructions LibTorch uses: "AVX2"
  std::vector<AcceleratorFacts> accelerators = {};
  CudaLibraryFacts cuda_library = {};
  bool has_nvidia_driver = false;  ///< the kernel has loaded NVIDIA's driver
};
/// Blocks for as long as the program needs to load LibTorch, and for `timeout` at most.
LibraryFacts library_facts(const DoctorOptions& options);
/// What the program has printed. @throws Error where it is not that
LOCKSTEP_API LibraryFacts read_library_facts(const std::string& json);
LOCKSTEP_API Findings judge_libraries(const LibraryFacts& facts, const BuildFacts& built);
LOCKSTEP_API Findings judge_accelerators(const LibraryFacts& facts);

/// A collective that was measured between the ranks.
struct TimingFacts {
  std::string name = {};        ///< "all_reduce"
  long bytes = 0;               ///< of each rank's tensor
  std::string carried_by = {};  ///< "shared memory" or "sockets"
  int rounds = 0;               ///< whose median was taken
  double median_us = 0;         ///< microseconds
};

struct SelfTestFacts {
  std::string failure = {};  ///< what the ranks or their launcher said; empty: all below is known
  int ranks = 2;
  double seconds = 0;  ///< from the start of the launcher to the end of all
  double meet_s = 0;   ///< until the ranks were one group, after they were started
  bool shares_memory = false;
  std::vector<TimingFacts> timings = {};
};
/// Starts ranks by `lockstep run`. Blocks until they have ended, for `timeout` at most.
LOCKSTEP_API SelfTestFacts self_test_facts(const DoctorOptions& options);
/// What rank 0 has printed. @throws Error where it is not that
LOCKSTEP_API SelfTestFacts read_self_test_facts(const std::string& json);
LOCKSTEP_API Findings judge(const SelfTestFacts& facts);

}  // namespace lockstep::doctor
