// Local SGD (Stich, arXiv 1805.09767): each rank trains by itself, and now and then all take the mean of
// their weights. A Strategy of one's own.
#pragma once

#include <lockstep/lockstep.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace ls = lockstep;

class LocalSgd final : public ls::Strategy {
 public:
  /// Ranks take the mean after every `period` steps of an optimizer, `period` >= 1.
  explicit LocalSgd(std::int64_t period) : period_(period) {}

  std::string_view name() const override { return "local_sgd"; }

  // Asks the ClusterEnvironment where the ranks meet, and joins them.
  void setup_environment(ls::ClusterEnvironment& environment, const ls::WorldShape& shape) override {
    environment.validate_settings(shape.devices, shape.num_nodes);
    ls::set_world_ranks(environment, shape);
    communicator_ = ls::init_communicator({.main_address = environment.main_address(),
                                           .main_port = environment.main_port(),
                                           .rank = environment.global_rank(),
                                           .world_size = environment.world_size()});
  }
  const ls::Communicator& communicator() const override { return communicator_; }

  // All ranks start from the weights of rank 0.
  void setup_module(const std::shared_ptr<torch::nn::Module>& module) override {
    module->to(root_device());
    follow_rank_0(*module);
  }
  void setup_evaluation(torch::nn::Module& module) override { follow_rank_0(module); }

  std::unique_ptr<ls::Optimizer> setup_optimizer(torch::nn::Module& module,
                                                 const ls::OptimizerFactory& factory) override {
    auto optimizer = Strategy::setup_optimizer(module, factory);
    modules_[optimizer.get()] = &module;
    return optimizer;
  }

  // Nothing is sent for gradients.
  void backward(const torch::Tensor& loss, std::span<torch::nn::Module* const> /*synced*/,
                const ls::BackwardOptions& options) override {
    loss.backward(options.gradient, options.retain_graph, options.create_graph);
  }

  void optimizer_step(ls::Optimizer& optimizer) override {
    optimizer.step();
    if (++steps_ % period_ == 0) average(*modules_.at(&optimizer));
  }

  // Before a checkpoint and at the end of fit, where there can be only one model.
  void check_replicas(torch::nn::Module& module) override { average(module); }

  // A run that goes on from a checkpoint averages after the same steps.
  ls::StateTree state() const override {
    ls::StateTree state;
    state.set("steps", steps_);
    return state;
  }
  void load_state(const ls::StateTree& state) override { steps_ = state.get<std::int64_t>("steps"); }

  void teardown() override { modules_.clear(); }

 private:
  static std::vector<torch::Tensor> tensors_of(const torch::nn::Module& module) {
    std::vector<torch::Tensor> tensors;
    for (const auto& parameter : module.parameters()) tensors.push_back(parameter.detach());
    for (const auto& buffer : module.buffers())
      if (buffer.is_floating_point()) tensors.push_back(buffer);
    return tensors;
  }

  void follow_rank_0(const torch::nn::Module& module) const {
    for (const auto& parameter : module.parameters()) communicator_.broadcast(parameter.detach());
    for (const auto& buffer : module.buffers()) communicator_.broadcast(buffer);
  }

  void average(const torch::nn::Module& module) const {
    for (const auto& tensor : tensors_of(module)) communicator_.all_reduce(tensor, ls::ReduceOp::kAvg);
  }

  std::int64_t period_;
  std::int64_t steps_ = 0;
  ls::Communicator communicator_;  // a world of one until the ranks have joined
  std::map<const ls::Optimizer*, torch::nn::Module*> modules_;
};
