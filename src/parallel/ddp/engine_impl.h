// What a DdpEngine is made of: for the engine itself and for Join.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/ddp/ddp_engine.h>

#include "parallel/ddp/bucket_reducer.h"
#include "parallel/ddp/choose_hook.h"
#include "parallel/ddp/model_watch.h"

namespace lockstep {
namespace detail {

/// The collectives of an engine that ranks without batches have to shadow.
enum class EngineEvent { kBackward, kStep };

/// Who still has batches, as a Join tells an engine.
struct Participants {
  int divisor = 1;     ///< of averages
  int first_rank = 0;  ///< whose buffers all follow
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
  void make_reducer();
  /// Drops what an unfinished backward left behind.
  void restart();
  /// Calls the Reducer and names parameters that got no gradient.
  template <class Call>
  void call_reducer(Call call);
  void broadcast_buffers(int root);
  void shadow_backward(const detail::Participants& participants, bool keeps_gradients);

  Communicator comm;
  Ddp options;
  std::vector<detail::NamedTensor> trained = {};
  std::vector<at::Tensor> parameters = {}, buffers = {};
  detail::ModelWatch watch;
  CommHook hook;
  std::unique_ptr<detail::BucketReducer> reducer = {};  // none in a world of one, or with nothing to train
  detail::EngineObserver* observer = nullptr;
  int no_sync_depth = 0;
  bool has_prepared = false;         // ever
  bool is_backward_pending = false;  // prepared and not checked yet
  bool was_joined = false;
};

}  // namespace lockstep
