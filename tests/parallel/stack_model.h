// A model of blocks that tell what becomes of what they compute.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include <lockstep/torch.h>

#include "ddp_support.h"

namespace lockstep {

// What a block computes between its two layers.
using Middle = std::function<at::Tensor(const at::Tensor&)>;

struct StackBlock : torch::nn::Module {
  explicit StackBlock(Middle chosen) : middle(std::move(chosen)) {
    register_module("norm", norm);
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(const at::Tensor& x) {
    auto hidden = middle(up->forward(norm->forward(x)));
    seen.push_back(hidden.storage().getWeakStorageImpl());
    return x + at::dropout(down->forward(hidden), 0.25, is_training());
  }
  Middle middle;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> seen;
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({10})};
  torch::nn::Linear up{10, 40}, down{40, 10};
};

struct Stack : torch::nn::Module {
  explicit Stack(const Middle& middle) {
    register_module("stem", stem);
    register_module("blocks", blocks);
    register_module("head", head);
    for (int i = 0; i < 3; ++i) blocks->push_back(std::make_shared<StackBlock>(middle));
  }
  at::Tensor forward(const at::Tensor& x) {
    auto hidden = stem->forward(x);
    for (const auto& block : *blocks) hidden = block->as<StackBlock>()->forward(hidden);
    return head->forward(hidden);
  }
  StackBlock& block(std::size_t i) { return *blocks[i]->as<StackBlock>(); }
  torch::nn::Linear stem{10, 10}, head{10, 3};
  torch::nn::ModuleList blocks;
};

inline std::shared_ptr<Stack> make_stack(const Middle& middle = [](const at::Tensor& x) {
  return at::gelu(x);
}) {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(5);
  return std::make_shared<Stack>(middle);
}

inline at::Tensor seeded_loss(Stack& model, const at::Tensor& x) {
  torch::manual_seed(11);
  return model.forward(x).pow(2).mean();
}

inline void expect_equal_gradients(const torch::nn::Module& expected, const torch::nn::Module& got) {
  const auto items = got.named_parameters();
  for (const auto& item : expected.named_parameters()) {
    const auto &a = item.value().grad(), &b = items[item.key()].grad();
    ASSERT_EQ(a.defined(), b.defined()) << item.key();
    EXPECT_TRUE(!a.defined() || a.equal(b)) << item.key();
  }
}

}  // namespace lockstep
