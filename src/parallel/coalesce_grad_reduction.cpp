#include <lockstep/parallel/coalesce_grad_reduction.h>

#include <exception>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/torch.h>

namespace lockstep::deepspeed {
namespace {

void require_own_scope(const std::vector<std::shared_ptr<ShardedEngine>>& engines) {
  if (engines.empty()) {
    throw ConfigError("parallel", {.what = "CoalesceGradReduction of a model that is not sharded",
                                   .expected = "one that deepspeed or fsdp has set up",
                                   .hint = "use fabric.no_backward_sync(model)"});
  }
  for (const auto& engine : engines) {
    if (!engine->is_local()) continue;
    throw ConfigError("parallel", {.what = "CoalesceGradReduction within another one, or within no_sync()",
                                   .expected = "one scope at a time"});
  }
}

}  // namespace

struct CoalesceGradReduction::Impl {
  explicit Impl(std::vector<std::shared_ptr<ShardedEngine>> found) : engines(std::move(found)) {
    for (const auto& engine : engines) local.push_back(std::make_unique<ShardedEngine::NoSync>(*engine));
  }

  std::vector<std::shared_ptr<ShardedEngine>> engines;
  std::vector<std::unique_ptr<ShardedEngine::NoSync>> local;  // ends before they do
};

CoalesceGradReduction::CoalesceGradReduction(const torch::nn::Module& module) {
  auto engines = sharded_engines(module);
  require_own_scope(engines);
  impl_ = std::make_unique<Impl>(std::move(engines));
}

CoalesceGradReduction::~CoalesceGradReduction() {
  if (impl_ && std::uncaught_exceptions() == 0)
    log_warning("CoalesceGradReduction ended without close(): its gradients wait for the next backward");
}

void CoalesceGradReduction::close() {
  const auto ending = std::move(impl_);  // ends whatever happens
  if (!ending) return;
  ending->local.clear();
  for (const auto& engine : ending->engines) engine->average_accumulated();
}

}  // namespace lockstep::deepspeed
