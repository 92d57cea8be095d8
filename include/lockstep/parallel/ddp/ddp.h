// The options of distributed data parallel training.
#pragma once

#include <chrono>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/base/options.h>
#include <lockstep/comm/reduce_op.h>

namespace lockstep {

/// How the ranks of one node come to be.
enum class StartMethod {
  kAuto,  ///< fork where that is still possible, else spawn ("popen")
  kFork,  ///< fork, or an error
  kSpawn  ///< re-execute the program
};

/// Distributed data parallel: every rank holds the whole model and optimizer, works on its share of
/// the batch, and gradients are averaged during backward, bucket by bucket. Options are those of
/// torch.nn.parallel.DistributedDataParallel where names agree.
struct Ddp {
  double bucket_cap_mb = 25;  ///< gradients reduced at once, in MiB; the first bucket is 1 MiB by default
  bool find_unused_parameters =
      false;                  ///< allows losses that leave out some parameters; walks the graph for them
  bool static_graph = false;  ///< promises that the graph of every step is that of the first
  bool gradient_as_bucket_view = false;  ///< gradients are views of the buckets: saves one copy of them
  bool broadcast_buffers = true;         ///< buffers follow rank 0's after every step
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< for joining and for each collective
  std::string process_group_backend = "gloo";                    ///< what carries the bytes
  Reduction reduction = Reduction::kOrdered;                     ///< order of sums
  StartMethod start_method = StartMethod::kAuto;                 ///< how ranks come to be
};

LOCKSTEP_API void describe(OptionVisitor& visitor, Ddp& options);

}  // namespace lockstep
