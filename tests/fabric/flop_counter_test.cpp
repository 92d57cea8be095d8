#include <lockstep/fabric/flop_counter.h>

#include <gtest/gtest.h>
#include <lockstep/torch.h>

#include <map>

#include <ATen/record_function.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;

double macs_of(const std::function<void()>& run) {
  const FlopCounter counter;
  run();
  return counter.forward().macs;
}

TEST(FlopCounter, CountsMatrixProducts) {
  const auto a = at::ones({2, 3, 4}), b = at::ones({4, 5});
  EXPECT_EQ(macs_of([&] { at::matmul(a, b); }), 2 * 3 * 4 * 5);
  EXPECT_EQ(macs_of([&] { at::bmm(a, at::ones({2, 4, 7})); }), 2 * 3 * 4 * 7);
  EXPECT_EQ(macs_of([&] { at::matmul(at::ones({6, 1, 3, 4}), at::ones({5, 4, 2})); }), 6 * 5 * 3 * 4 * 2);
  EXPECT_EQ(macs_of([&] { at::matmul(a, at::ones({4})); }), 2 * 3 * 4);
  EXPECT_EQ(macs_of([&] { at::linear(a, at::ones({7, 4}), at::ones({7})); }), 2 * 3 * 4 * 7);
  EXPECT_EQ(macs_of([&] { at::einsum("bij,jk->bik", {a, b}); }), 2 * 3 * 4 * 5);
  EXPECT_EQ(macs_of([&] { at::addmm(at::ones({3, 5}), at::ones({3, 4}), b); }), 3 * 4 * 5);
}

TEST(FlopCounter, CountsConvolutions) {
  const auto image = at::ones({2, 3, 9, 8});
  EXPECT_EQ(macs_of([&] { at::conv2d(image, at::ones({6, 3, 3, 3})); }), 2 * 6 * 7 * 6 * 3 * 9);
  EXPECT_EQ(macs_of([&] {
              at::conv2d(image, at::ones({6, 1, 3, 3}), at::Tensor(), 2, 1, 1, 3);
            }),
            2 * 6 * 5 * 4 * 9);
  EXPECT_EQ(macs_of([&] {
              at::conv_transpose2d(image, at::ones({3, 5, 2, 2}), {}, 2);
            }),
            2 * 9 * 8 * 3 * 5 * 4);
  EXPECT_EQ(macs_of([&] {
              at::conv1d(at::ones({2, 3, 9}), at::ones({4, 3, 3}), at::Tensor(), 1, 1, 2);
            }),
            2 * 4 * 7 * 9);
}

TEST(FlopCounter, CountsAttentionOnceWhateverItCalls) {
  const auto query = at::randn({2, 4, 6, 8}), key = at::randn({2, 4, 5, 8});
  const double macs = 2 * 4 * 6 * 5 * (8 + 8);
  EXPECT_EQ(macs_of([&] { at::scaled_dot_product_attention(query, key, key); }), macs);
  EXPECT_EQ(macs_of([&] { at::scaled_dot_product_attention(query, key, key, at::zeros({6, 5})); }), macs);
}

// As DeepSpeed counts them.
TEST(FlopCounter, CountsWhatIsDoneToEachElement) {
  const auto x = at::randn({2, 8});
  const auto others = [&](const std::function<void()>& run) {
    const FlopCounter counter;
    run();
    EXPECT_EQ(counter.forward().macs, 0);
    return counter.forward().other_flops;
  };
  EXPECT_EQ(others([&] { at::relu(x); }), 16);
  EXPECT_EQ(others([&] { at::gelu(x); }), 16);
  EXPECT_EQ(others([&] { at::softmax(x, -1); }), 16);
  EXPECT_EQ(others([&] { at::layer_norm(x, {8}, at::ones({8}), at::zeros({8})); }), 5 * 16);
  EXPECT_EQ(others([&] { at::layer_norm(x, {8}); }), 4 * 16);
  EXPECT_EQ(others([&] { x + at::ones({3, 1, 8}); }), 3 * 16);
  EXPECT_EQ(others([&] { at::dropout(x, 0.5, true); }), 0);
  EXPECT_EQ(others([&] { x.sin(); }), 0);
}

// Modules call other operators than functions do.
TEST(FlopCounter, CountsModulesOfSequencesAndInPlace) {
  const auto work_of = [](auto module, const at::Tensor& x) {
    const FlopCounter counter;
    module->forward(x);
    return std::pair(counter.forward().macs, counter.forward().other_flops);
  };
  const auto x = at::randn({2, 3, 8});
  EXPECT_EQ(work_of(nn::Linear(8, 4), x), std::pair(2.0 * 3 * 8 * 4, 0.0)) << "a bias counts as nothing";
  EXPECT_EQ(work_of(nn::Linear(8, 4), x.view({6, 8})), std::pair(6.0 * 8 * 4, 0.0));
  EXPECT_EQ(work_of(nn::ReLU6(nn::ReLU6Options(true)), x.clone()), std::pair(0.0, 48.0));
  EXPECT_EQ(work_of(nn::ELU(nn::ELUOptions().inplace(true)), x.clone()), std::pair(0.0, 48.0));
  EXPECT_EQ(work_of(nn::LeakyReLU(nn::LeakyReLUOptions().inplace(true)), x.clone()), std::pair(0.0, 48.0));
  EXPECT_EQ(work_of(nn::MaxPool1d(2), x), std::pair(0.0, 48.0));
  const FlopCounter counter;
  nn::MaxPool1d(2)->forward_with_indices(x);
  nn::MaxPool2d(2)->forward_with_indices(at::ones({1, 3, 4, 4}));
  EXPECT_EQ(counter.forward().other_flops, 48 + 48);
}

// Both gradients of a product cost as much as the product.
TEST(FlopCounter, KeepsBackwardApart) {
  nn::Linear first(4, 6), second(6, 2);
  const FlopCounter counter;
  const auto loss = second(torch::relu(first(at::ones({3, 4})))).sum();
  const double macs = 3 * 4 * 6 + 3 * 6 * 2;
  EXPECT_EQ(counter.forward().macs, macs);
  EXPECT_EQ(counter.backward().macs, 0);
  loss.backward();
  EXPECT_EQ(counter.forward().macs, macs);
  EXPECT_EQ(counter.backward().macs, 2 * macs - 3 * 4 * 6);  // the input needs no gradient
  EXPECT_GT(counter.forward().time.count(), 0);
}

struct Attention : nn::Module {
  Attention() {
    register_module("in", in);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto y = in(x);
    return out(at::matmul(at::softmax(at::matmul(y, y.t()), -1), y));
  }
  nn::Linear in{8, 4}, out{4, 8};
};

struct Block : nn::Module {
  Block() {
    attention = register_module("attention", std::make_shared<Attention>());
    register_module("mlp", mlp);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto y = x + attention->forward(x);
    return y + mlp->forward(y);
  }
  std::shared_ptr<Attention> attention;
  nn::Sequential mlp{nn::Linear(8, 32), nn::GELU(), nn::Linear(32, 8)};
};

TEST(FlopCounter, KnowsTheModuleOfEveryOperator) {
  const Block block;
  FlopCounter counter(block);
  const_cast<Block&>(block).forward(at::randn({5, 8}));
  std::map<std::string, FlopCounter::ModuleWork> found;
  for (const auto& module : counter.modules()) found[module.path] = module;
  EXPECT_EQ(counter.modules().front().path, "");
  EXPECT_EQ(found[""].type, "Block");
  EXPECT_EQ(found["attention.in"].type, "Linear");
  EXPECT_EQ(found["attention.in"].work.macs, 5 * 8 * 4);
  EXPECT_EQ(found["attention.in"].parameters, 8 * 4 + 4);
  // What has no parameters lies between its neighbours.
  EXPECT_EQ(found["attention"].work.macs, 5 * 8 * 4 * 2 + 2 * 5 * 5 * 4);
  EXPECT_EQ(found["mlp"].work.macs, 2 * 5 * 8 * 32);
  EXPECT_EQ(found["mlp"].work.other_flops, 5 * 32);
  EXPECT_EQ(found["mlp.1"].work.other_flops, 0);  // GELU has no parameters to know it by
  EXPECT_EQ(found[""].work.macs, found["attention"].work.macs + found["mlp"].work.macs);
  EXPECT_EQ(found[""].work.macs, counter.forward().macs);
  EXPECT_EQ(found[""].work.other_flops, counter.forward().other_flops);
  EXPECT_EQ(found[""].work.time, counter.forward().time);
}

TEST(FlopCounter, LooksThroughRangesOfOthersAndLetsOperatorsRefuse) {
  const auto x = at::ones({2, 3});
  const FlopCounter counter;
  {
    RECORD_FUNCTION("a range", {});
    at::mm(x, x.t());
    EXPECT_EQ(counter.forward().macs, 12);
  }
  EXPECT_THROW(at::conv2d(at::ones({1, 1, 4, 4}), at::ones({1, 1, 2, 2}), at::Tensor(), 0), c10::Error);
  EXPECT_THROW(at::mm(x, x), c10::Error);
  at::mm(x.to_sparse(), x.t());
  EXPECT_EQ(counter.forward().macs, 12);
}

TEST(FlopCounter, SeveralCountWhatEachOfThemSees) {
  const auto x = at::ones({2, 3});
  auto outer = std::make_unique<FlopCounter>();
  at::mm(x, x.t());
  const FlopCounter inner;
  at::mm(x, x.t());
  EXPECT_EQ(outer->forward().macs, 2 * 12);
  EXPECT_EQ(inner.forward().macs, 12);
  outer.reset();
  at::mm(x, x.t());
  EXPECT_EQ(inner.forward().macs, 24);
}

TEST(MeasureFlops, CountsWhatATrainingStepDoes) {
  nn::Linear model(4, 6);
  const auto forward = [&] { return model(at::ones({3, 4}, at::kFloat)); };
  EXPECT_EQ(measure_flops(forward), 2 * 3 * 4 * 6);
  EXPECT_EQ(measure_flops(forward, [](const at::Tensor& y) { return y.sum(); }), 2 * 2 * 3 * 4 * 6);
  EXPECT_EQ(measure_flops([] {
              return at::mm(at::empty({30, 40}, at::kMeta), at::empty({40, 50}, at::kMeta));
            }),
            2 * 30 * 40 * 50);
  nn::LSTM lstm(nn::LSTMOptions(4, 6));
  EXPECT_EQ(measure_flops([&] {
              return std::get<0>(lstm(at::ones({7, 2, 4})));
            }),
            2.0 * 7 * 2 * 24 * (4 + 6));
}

}  // namespace
}  // namespace lockstep
