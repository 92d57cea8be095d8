#include "parallel/ddp/gradient_arrivals.h"

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

[[noreturn]] void refuse_sparse(const std::string& name) {
  throw ConfigError("parallel", {.what = "a sparse gradient cannot be averaged: that of " + name,
                                 .expected = "dense gradients",
                                 .got = "a sparse one",
                                 .hint = "leave out sparse(true) of the embedding"});
}

[[noreturn]] void refuse_late(const std::string& name) {
  throw CommError(
      "parallel",
      {.what = "a gradient came after the gradients of its model had been averaged: " + name,
       .expected = "a model whose backward runs once per pass",
       .got = "another backward within the same backward, as of a checkpoint around the whole model "
              "that is called twice",
       .hint = "set static_graph = true, or call the model once, on the inputs together"});
}

}  // namespace

GradientArrivals::GradientArrivals(const std::vector<NamedTensor>& trained, const HookAdapter& hook)
    : hook_(hook) {
  for (const auto& named : trained) {
    handles_.emplace_back(register_post_accumulate_grad_hook(
        named.tensor, [this, &named](const at::Tensor&) { arrived(named); }));
  }
}

void GradientArrivals::arrived(const NamedTensor& named) {
  if (!is_open_) return;
  has_any_ = true;
  if (named.tensor.grad().layout() != at::kStrided) refuse_sparse(named.name);
  if (hook_.is_finished()) refuse_late(named.name);
}

}  // namespace lockstep::detail
