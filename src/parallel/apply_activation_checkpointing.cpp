// Which modules of a model are checkpointed or offloaded, by policy.
#include <memory>

#include <lockstep/parallel/activation_checkpointing.h>
#include <lockstep/torch.h>

#include "parallel/activations/block_segments.h"
#include "parallel/activations/module_policies.h"
#include "parallel/sharded/unit_plan.h"

namespace lockstep {

void apply_activation_checkpointing(const torch::nn::Module& module, const WrapPolicy& policy) {
  detail::set_policy(module, "activation checkpointing", typeid(detail::BlockSegments), [&] {
    return std::make_unique<detail::BlockSegments>(detail::plan_blocks(module, policy));
  });
}

}  // namespace lockstep
