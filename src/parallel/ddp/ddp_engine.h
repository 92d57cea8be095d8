// What a DdpEngine is made of: for the engine itself and for Join.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/autograd/variable.h>

#include <lockstep/parallel/ddp/ddp_engine.h>

#include "parallel/ddp/comm_hooks.h"
#include "parallel/ddp/gradient_reducer.h"
#include "parallel/module_states.h"
#include "parallel/replica_check.h"

namespace lockstep::detail {

/// Remembers parameters and buffers of a module and compares.
class ModelWatch {
 public:
  /// `allows_freezing`: trained parameters may be frozen for a while.
  ModelWatch(const torch::nn::Module& module, const ModuleStates& states, bool allows_freezing);

  /// Looks at every parameter at each call, and now and then at what the module holds. No allocation but
  /// then. @throws ConfigError naming what changed
  void check();

 private:
  // What backward relies on. Storage may come and go: optimizers move parameters to arenas.
  struct Known {
    NamedTensor named;
    std::vector<std::int64_t> sizes, strides;
    at::ScalarType dtype;
    at::Device device;
    bool is_trained;
    decltype(torch::autograd::impl::grad_accumulator(at::Tensor())) accumulator;  // null where frozen
  };

  void check(const Known& known) const;

  std::vector<Known> parameters_;
  ModuleLists lists_;
  bool allows_freezing_;
};

}  // namespace lockstep::detail

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
  /// What averages; null in a world of one, or with nothing to train.
  detail::GradientReducer* make_reducer();
  /// Before a backward that averages. Null where there is nothing to average.
  detail::GradientReducer* prepare_backward(const detail::Participants& participants);
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
  std::unique_ptr<detail::GradientReducer> reducer = {};
  detail::EngineObserver* observer = nullptr;
  int no_sync_depth = 0;
  bool has_prepared = false;  // ever
  bool was_joined = false;
};

}  // namespace lockstep
