// What a backward that cannot be averaged is called.
#pragma once

#include <string>
#include <vector>

#include <lockstep/parallel/ddp/ddp.h>

#include "comm/compat.h"
#include "parallel/module_states.h"

namespace lockstep::detail {

/// For the handler of `error`: throws what c10d's Reducer means by it, or `error` itself where that is not
/// known. `trained`: to name the parameters that c10d counts.
/// @throws CommError
[[noreturn]] void throw_named(const c10::Error& error, const std::vector<NamedTensor>& trained,
                              const Ddp& options, int rank);

/// @throws ConfigError: the loss depends on no parameter of the model
[[noreturn]] void refuse_loss_without_model(const std::vector<NamedTensor>& trained, int rank);

/// @throws ConfigError for a loss of which backward can make no gradient. `comm` may be null.
void require_gradient(const at::Tensor& loss, const Communicator* comm);

/// @throws ConfigError: create_graph in a pass that averages
[[noreturn]] void refuse_create_graph();

}  // namespace lockstep::detail
