// Adam and AdamW: they differ in where weight decay enters.
#include "optim/adam_steps.h"
#include "optim/fused.h"
#include "optim/make_optimizer.h"

namespace lockstep::detail {
namespace {

class AdamOptimizer final : public FusedOptimizer {
 public:
  AdamOptimizer(std::vector<NamedParameter> parameters, Grouping grouping, std::string_view name,
                const AdamSettings& settings)
      : FusedOptimizer(std::move(parameters), std::move(grouping), {"exp_avg", "exp_avg_sq"}),
        name_(name),
        settings_(settings) {}

  std::string_view name() const override { return name_; }

  void step(double grad_scale) override {
    at::NoGradGuard no_grad;
    if (is_on_device())
      return update_on_device(grad_scale, [&](const DeviceBatch& batch, const Group& group) {
        adam_step(batch, group, settings_);
      });
    AdamSteps steps(settings_, groups(), grad_scale);
    update_parameters([&]<class T>(Slot& slot, T* param, Gradients grad, std::int64_t size) {
      const auto& by = steps.at(slot.group, ++slot.steps());
      return AdamSegment<T>{param, grad, slot.buffer<T>(0), slot.buffer<T>(1), size, by};
    });
  }

 private:
  bool has_state(const Group&) const override { return true; }

  std::string_view name_;
  AdamSettings settings_;
};

template <class Options>
std::unique_ptr<Optimizer> make_adam(const Options& options, std::vector<NamedParameter> parameters,
                                     std::string_view name, bool decoupled) {
  const Optimizer::Group defaults{.pattern = "",
                                  .lr = options.lr,
                                  .initial_lr = options.lr,
                                  .weight_decay = options.weight_decay,
                                  .betas = options.betas};
  auto grouping = group_parameters(parameters, defaults, options.groups);
  const AdamSettings settings{.eps = options.eps,
                              .decoupled = decoupled,
                              .maximize = options.maximize,
                              .bias_correction = options.bias_correction};
  return std::make_unique<AdamOptimizer>(std::move(parameters), std::move(grouping), name, settings);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Adam& options, std::vector<NamedParameter> parameters) {
  return make_adam(options, std::move(parameters), "Adam", /*decoupled=*/false);
}

std::unique_ptr<Optimizer> make_optimizer(const AdamW& options, std::vector<NamedParameter> parameters) {
  return make_adam(options, std::move(parameters), "AdamW", /*decoupled=*/true);
}

}  // namespace lockstep::detail
