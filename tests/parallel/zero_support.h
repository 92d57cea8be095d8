// A model in shards by the plans of DeepSpeed's stages and fsdp, in float32 and in 16 bits.
#pragma once

#include <gtest/gtest.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/strategy/deepspeed.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strategy/deepspeed_strategy.h"

#include "ddp_support.h"

namespace lockstep {

struct ZeroBlock : torch::nn::Module {
  ZeroBlock() { register_module("linear", linear); }
  at::Tensor forward(const at::Tensor& x) { return x + linear->forward(x).tanh(); }
  torch::nn::Linear linear{75, 75};
};

struct ZeroModel : torch::nn::Module {
  ZeroModel() {
    register_module("blocks", blocks);
    register_module("head", head);
    for (int i = 0; i < 2; ++i) blocks->push_back(std::make_shared<ZeroBlock>());
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& block : *blocks) x = block->as<ZeroBlock>()->forward(x);
    return head->forward(x);
  }
  torch::nn::ModuleList blocks;
  torch::nn::Linear head{75, 3};
};

inline std::shared_ptr<ZeroModel> make_zero_model() {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(8);
  return std::make_shared<ZeroModel>();
}

inline std::map<std::string, at::Tensor> original() {
  std::map<std::string, at::Tensor> values;
  for (const auto& item : make_zero_model()->named_parameters())
    values[item.key()] = item.value().detach().clone();
  return values;
}

// A sharded model, as strategies hold it.
struct Sharded {
  Sharded(const ShardingPlan& plan, const Communicator& ranks, deepspeed::Dtype type)
      : comm(ranks),
        dtype(type == deepspeed::Dtype::kBf16 ? at::kBFloat16 : at::kFloat),
        model(make_zero_model()),
        engine(std::make_shared<ShardedEngine>(*model, plan, comm)) {
    keep_sharded(model, engine);
  }

  // On rank 0: what the shards hold, in their own type.
  std::map<std::string, at::Tensor> masters() const {
    ShardedEngine* const engines[] = {engine.get()};
    return full_state(*model, engines, WholeValues::kMaster);
  }

  void expect_masters(const std::map<std::string, at::Tensor>& expected) const {
    const auto found = masters();
    for (const auto& [name, tensor] : found)
      EXPECT_TRUE(tensor.equal(expected.at(name).to(tensor.scalar_type()))) << name;
  }

  bool is_rank(int rank) const { return comm.rank() == rank; }

  Communicator comm;
  at::ScalarType dtype;
  std::shared_ptr<ZeroModel> model;
  std::shared_ptr<ShardedEngine> engine;
};

inline std::vector<ShardingPlan> all_plans(int ranks, deepspeed::Dtype type) {
  std::vector<ShardingPlan> plans;
  for (const int stage : {0, 1, 2, 3})
    plans.push_back(detail::plan_of(deepspeed_config({.stage = stage}, type), type, ranks));
  plans.push_back(plans.back());
  plans.back().persistent_elements = 0;  // all units come and go
  if (ranks == 4) {
    plans.push_back(plans.back());
    plans.back().shards = 2;
  }
  if (type == deepspeed::Dtype::kFp32) {
    plans.push_back(plan_of(Fsdp{}, ranks, 1));
  } else {
    plans.push_back(plans.back());
    plans.back().master_dtype = at::kBFloat16;
  }
  return plans;
}

template <class Body>
void for_each_plan(const Body& body) {
  for (const int ranks : {2, 4}) {
    testing::run_ranks(ranks, [&](const Communicator& comm) {
      for (const auto type : {deepspeed::Dtype::kFp32, deepspeed::Dtype::kBf16}) {
        int number = 0;
        for (const auto& plan : all_plans(ranks, type)) {
          SCOPED_TRACE(c10::str("plan ", number++, " on ", ranks, " ranks"));
          Sharded sharded(plan, comm, type);
          body(sharded);
        }
      }
    });
  }
}

}  // namespace lockstep
