#include "strategy/on_cpu.h"

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

template <class Dict>
void require_tensors_on_cpu(const char* kind, const Dict& tensors, int rank) {
  for (const auto& item : tensors) {
    const auto& tensor = item.value();
    if (!tensor.defined() || tensor.is_cpu()) continue;
    throw ConfigError("strategy",
                      {.what = kind + (" " + item.key()) + " is on a device on which nothing is trained yet",
                       .expected = "every parameter and buffer on the CPU",
                       .got = tensor.device().str(),
                       .where = "rank " + std::to_string(rank),
                       .hint = "call module->to(torch::kCPU) before; docs/status.md says what is planned"});
  }
}

}  // namespace

void require_on_cpu(const torch::nn::Module& module, int rank) {
  require_tensors_on_cpu("parameter", module.named_parameters(), rank);
  require_tensors_on_cpu("buffer", module.named_buffers(), rank);
}

}  // namespace lockstep::detail
