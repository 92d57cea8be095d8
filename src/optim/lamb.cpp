// Lamb: Adam's update, scaled for each parameter tensor by its trust ratio.
#include <cmath>

#include "optim/fused.h"
#include "optim/lamb_kernel.h"
#include "optim/make_optimizer.h"

namespace lockstep::detail {

/// As update_all() of fused.h, which finds it by its segments, in two passes.
template <class T>
void update_all(std::span<const LambSegment<T>> segments) {
  const auto chunks = chunks_of(segments);
  const auto isa = best_isa();
  std::vector<LambSquares> of_chunk(chunks.size()), of_segment(segments.size());
  for_each_chunk(std::span(chunks), [&](std::size_t i) {
    of_chunk[i] = update_moments(segments[chunks[i].segment], chunks[i].begin, chunks[i].end, isa);
  });
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    of_segment[chunks[i].segment].param += of_chunk[i].param;
    of_segment[chunks[i].segment].update += of_chunk[i].update;
  }
  for_each_chunk(std::span(chunks), [&](std::size_t i) {
    const auto& segment = segments[chunks[i].segment];
    const double ratio = trust_ratio(of_segment[chunks[i].segment], segment.by);
    apply_update(segment, chunks[i].begin, chunks[i].end, ratio, isa);
  });
}

namespace {

class LambOptimizer final : public FusedOptimizer {
 public:
  LambOptimizer(std::vector<NamedParameter> parameters, Grouping grouping, const Lamb& options)
      : FusedOptimizer(std::move(parameters), std::move(grouping), {"exp_avg", "exp_avg_sq"}),
        options_(options) {}

  std::string_view name() const override { return "Lamb"; }
  bool is_elementwise() const override { return false; }

  void step(double grad_scale) override {
    at::NoGradGuard no_grad;
    update_parameters([&]<class T>(Slot& slot, T* param, const T* grad, std::int64_t size) {
      const auto by = coefficients(groups()[slot.group], ++slot.steps(), grad_scale);
      return LambSegment<T>{param, grad, slot.buffer<T>(0), slot.buffer<T>(1), size, by};
    });
  }

 private:
  bool has_state(const Group&) const override { return true; }

  LambCoefficients coefficients(const Group& group, std::int64_t step, double grad_scale) const {
    return {.grad_scale = grad_scale,
            .beta1 = (*group.betas)[0],
            .beta2 = (*group.betas)[1],
            .eps = options_.eps,
            .eps_inside_sqrt = options_.eps_inside_sqrt,
            .weight_decay = group.weight_decay,
            .step_size = options_.bias_correction ? corrected_lr(group, step) : group.lr,
            .min_ratio = options_.min_coeff,
            .max_ratio = options_.max_coeff};
  }

  static double corrected_lr(const Group& group, std::int64_t step) {
    const auto [beta1, beta2] = *group.betas;
    const auto power = static_cast<double>(step);
    return group.lr * std::sqrt(1.0 - std::pow(beta2, power)) / (1.0 - std::pow(beta1, power));
  }

  Lamb options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Lamb& options, std::vector<NamedParameter> parameters) {
  const Optimizer::Group defaults{.pattern = "",
                                  .lr = options.lr,
                                  .initial_lr = options.lr,
                                  .weight_decay = options.weight_decay,
                                  .betas = options.betas};
  auto grouping = group_parameters(parameters, defaults, options.groups);
  return std::make_unique<LambOptimizer>(std::move(parameters), std::move(grouping), options);
}

}  // namespace lockstep::detail
