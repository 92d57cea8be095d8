// What a DdpEngine is made of: for the engine itself and for Join.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/ddp/ddp_engine.h>

#include "parallel/ddp/bucket_reducer.h"
#include "parallel/ddp/choose_hook.h"
#include "parallel/ddp/model_watch.h"
#include "parallel/ddp/power_sgd_state.h"
#include "parallel/ddp/write_versions.h"
#include "parallel/replica_check.h"

namespace lockstep {
namespace detail {

/// The collectives of an engine that ranks without batches have to shadow.
enum class EngineEvent { kBackward, kStep };

/// Who still has batches, as a Join tells an engine.
struct Participants {
  int divisor = 1;      ///< of averages
  int first_rank = 0;   ///< whose buffers all follow
  bool are_all = true;  ///< no rank has run out
};

/// Told before each of these collectives. Collective, blocking.
class EngineObserver {
 public:
  virtual Participants before(const DdpEngine& engine, EngineEvent event) = 0;

 protected:
  ~EngineObserver() = default;
};

}  // namespace detail

struct DdpEngine::Impl {
  Impl(const torch::nn::Module& module, const detail::ModuleStates& states, Communicator group,
       const Ddp& ddp_options);

  detail::Participants announce(const DdpEngine& engine, detail::EngineEvent event);
  /// The Reducer; null in a world of one, or with nothing to train.
  detail::BucketReducer* make_reducer();
  /// Before a backward that averages. Null where there is nothing to average.
  detail::BucketReducer* prepare_backward(const detail::Participants& participants);
  void broadcast_buffers(int root);
  void shadow_backward(const detail::Participants& participants);
  void clear_gradients();

  Communicator comm;
  Ddp options;
  std::vector<detail::NamedTensor> trained = {};
  std::vector<at::Tensor> parameters = {}, buffers = {};
  detail::ModelWatch watch;
  detail::WriteVersions versions;
  detail::ReplicaCheck replicas;
  std::shared_ptr<detail::PowerSgdState> power_sgd;  // what that hook keeps; null for others
  CommHook hook;
  std::unique_ptr<detail::BucketReducer> reducer = {};
  detail::EngineObserver* observer = nullptr;
  int no_sync_depth = 0;
  bool has_prepared = false;  // ever
  bool was_joined = false;
};

}  // namespace lockstep
