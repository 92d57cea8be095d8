// Lamb: Adam's update, scaled for each parameter tensor by its trust ratio.
#include <ATen/ops/tensor.h>
#include <c10/util/accumulate.h>

#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer_factory.h>

#include "optim/fused.h"
#include "optim/lamb_kernel.h"
#include "optim/make_optimizer.h"

namespace lockstep::detail {

static_assert(kLambBlock == kGradNormBlock, "shards begin and end where blocks do");

namespace {

class LambOptimizer final : public FusedOptimizer {
 public:
  LambOptimizer(std::vector<NamedParameter> parameters, Grouping grouping, const Lamb& options,
                std::shared_ptr<PieceExchange> exchange)
      : FusedOptimizer(std::move(parameters), std::move(grouping), {"exp_avg", "exp_avg_sq"}),
        options_(options),
        exchange_(std::move(exchange)) {}

  std::string_view name() const override { return "Lamb"; }
  bool is_elementwise() const override { return false; }
  bool takes_pieces() const override { return exchange_ != nullptr; }

  void step(double grad_scale) override {
    at::NoGradGuard no_grad;
    if (is_on_device())
      return update_on_device(grad_scale, [this](const DeviceBatch& batch, const Group& group) {
        const auto squares = lamb_moments(batch, group, options_);
        lamb_move(batch, exchange_ ? exchange_->join_blocks(batch.names, squares) : squares,
                  whole_blocks(batch), group, options_);
      });
    const auto slots = slots_with_gradient();
    as_one_step([&] { step(std::span(slots), grad_scale); });
  }

 private:
  using Blocks = std::vector<std::vector<LambSquares>>;  // by parameter

  // The second pass only reads the state.
  void step(std::span<Slot* const> slots, double grad_scale) {
    Blocks blocks(parameters().size());
    update_parameters(slots, [&]<class T>(Slot& slot, T* param, Gradients grad, std::int64_t size) {
      ++slot.steps();
      auto& own = blocks[slot.parameter];
      own.resize(lamb_blocks(size));
      return LambMoments<T>{segment_of(slot, param, grad, size, grad_scale), own.data(), size};
    });
    if (exchange_ && !slots.empty()) join(slots, blocks);
    const auto move = [&]<class T>(Slot& slot, T* param, Gradients grad, std::int64_t size) {
      const auto segment = segment_of(slot, param, grad, size, grad_scale);
      return LambMove<T>{segment, trust_ratio(sum_of(blocks[slot.parameter]), segment.by), size};
    };
    update_parameters(slots, move, offload::SwapPass::kRead);
  }

  bool has_state(const Group&) const override { return true; }

  template <class T>
  LambSegment<T> segment_of(const Slot& slot, T* param, Gradients grad, std::int64_t size,
                            double grad_scale) const {
    return {param,
            grad,
            slot.buffer<T>(0),
            slot.buffer<T>(1),
            size,
            coefficients(groups()[slot.group], slot.steps(), grad_scale)};
  }

  std::vector<std::int64_t> whole_blocks(const DeviceBatch& batch) const {
    std::vector<std::int64_t> blocks;
    for (std::size_t i = 0; i < batch.parameters.size(); ++i)
      blocks.push_back(static_cast<std::int64_t>(exchange_ ? blocks_of_whole(batch.names[i])
                                                           : lamb_blocks(batch.parameters[i].numel())));
    return blocks;
  }

  std::size_t blocks_of_whole(const std::string& name) const {
    return lamb_blocks(c10::multiply_integers(exchange_->shape_of(name)));
  }

  // Blocks of pieces become those of whole parameters.
  void join(std::span<Slot* const> slots, Blocks& blocks) const {
    std::vector<std::string> names;
    std::vector<double> mine;
    for (const auto* slot : slots) {
      names.push_back(parameter(*slot).name);
      for (const auto& block : blocks[slot->parameter]) mine.insert(mine.end(), {block.param, block.update});
    }
    const auto all = exchange_->join_blocks(names, at::tensor(mine, at::kDouble).view({-1, 2}));
    const auto* next = all.const_data_ptr<double>();
    for (const auto* slot : slots) {
      auto& whole = blocks[slot->parameter];
      whole.assign(blocks_of_whole(parameter(*slot).name), {});
      for (auto& block : whole) block = {.param = *next++, .update = *next++};
    }
  }

  LambCoefficients coefficients(const Group& group, std::int64_t step, double grad_scale) const {
    return {.grad_scale = grad_scale,
            .beta1 = (*group.betas)[0],
            .beta2 = (*group.betas)[1],
            .eps = options_.eps,
            .eps_inside_sqrt = options_.eps_inside_sqrt,
            .weight_decay = group.weight_decay,
            .step_size = lamb_step_size(group.lr, (*group.betas)[0], (*group.betas)[1],
                                        static_cast<double>(step), options_.bias_correction),
            .min_ratio = options_.min_coeff,
            .max_ratio = options_.max_coeff};
  }

  Lamb options_;
  std::shared_ptr<PieceExchange> exchange_;  // null where parameters are whole
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Lamb& options, std::vector<NamedParameter> parameters,
                                          std::shared_ptr<PieceExchange> exchange) {
  auto grouping = group_parameters(parameters, default_group(options), options.groups);
  return std::make_unique<LambOptimizer>(std::move(parameters), std::move(grouping), options,
                                         std::move(exchange));
}

}  // namespace lockstep::detail
