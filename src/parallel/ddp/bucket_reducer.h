// c10d's Reducer and Logger, and what has to be done around them in a step.
#pragma once

#include <memory>
#include <vector>

#include <lockstep/parallel/ddp/ddp.h>
#include <lockstep/parallel/ddp/ddp_logging_data.h>

#include "parallel/ddp/hook_adapter.h"
#include "parallel/ddp/module_states.h"

namespace lockstep::detail {

class BucketReducer {
 public:
  /// Plans buckets and hooks itself into the parameters. Local. `trained` is not empty.
  BucketReducer(const std::vector<NamedTensor>& trained, const Communicator& comm, const Ddp& options,
                CommHook hook);
  /// Takes the hooks away.
  ~BucketReducer();

  /// Before an averaged backward from `loss`, whose averages are sums over `divisor`. Collective when
  /// buckets are rebuilt. @throws c10::Error when the one before did not end
  void prepare_backward(const at::Tensor& loss, int divisor);

  /// @throws c10::Error when the backward before did not end, listing parameters without gradient
  void check_finished() { reducer_->check_finalized(); }

  /// After a step: takes its times.
  void end_step();

  /// Takes part in an averaged backward of other ranks, with zeros. Collective, blocking.
  /// `keeps_gradients`: the averages become this rank's gradients, too.
  void shadow_backward(int divisor, bool keeps_gradients);

  void fill(DdpLoggingData& data) const;

 private:
  void begin_iteration();
  bool rebuild_buckets();
  bool walks_graph() const { return options_.find_unused_parameters && !options_.static_graph; }
  void delay_first_reduction(const at::Tensor& loss);
  void refuse_unlearnt_graph() const;
  at::Tensor shadow_used_map();
  void keep_gradients(c10d::GradBucket& bucket, const at::Tensor& used);

  std::vector<NamedTensor> trained_;
  Communicator comm_;
  Ddp options_;
  HookAdapter* hook_;  // the Reducer's
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;
  std::vector<std::int64_t> bucket_sizes_, rebuilt_bucket_sizes_;  // bytes
  bool is_iteration_begun_ = false;
  bool has_begun_backward_ = false;
};

/// The cap of a bucket. @throws ConfigError
std::int64_t bucket_bytes(const Ddp& options);

}  // namespace lockstep::detail
