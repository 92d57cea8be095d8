// Every use of a marked tensor is announced once, by operator, and nothing else changes.
#include <lockstep/parallel/dispatch/tensor_mark.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <ATen/autocast_mode.h>

#include <thread>

#include <lockstep/base/error.h>

#include "parallel/dispatch/recording_handler.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

at::Tensor matrix() { return at::arange(1, 7, at::kFloat).reshape({2, 3}); }

// A trained matrix, marked with tag 1.
class TensorMarks : public ::testing::Test {
 protected:
  RecordingHandler handler;
  const at::Tensor weight = matrix().set_requires_grad(true);
  TensorMark mark{weight, handler, 1};
  const at::Tensor plain = matrix();
};

TEST_F(TensorMarks, AnnounceAnOperatorOnceWhateverItCallsInside) {
  const auto bias = at::ones({2});
  const TensorMark bias_mark(bias, handler, 2);
  at::linear(plain, weight, bias);
  EXPECT_THAT(handler.take(), ElementsAre("aten::linear 1 2"));
  weight + weight;
  EXPECT_THAT(handler.take(), ElementsAre("aten::add 1 1"));
  at::layer_norm(plain, {3}, at::ones({3}), at::zeros({3}));
  EXPECT_THAT(handler.take(), IsEmpty());
  at::layer_norm(weight, {3});
  EXPECT_THAT(handler.take(), ElementsAre("aten::layer_norm 1"));
}

TEST_F(TensorMarks, AnnounceTensorsInLists) {
  at::cat({plain, weight, weight});
  EXPECT_THAT(handler.take(), ElementsAre("aten::cat 1 1"));
  const auto columns = at::tensor({0, 2});
  const TensorMark index_mark(columns, handler, 7);
  plain.index({torch::indexing::Slice(), columns});
  EXPECT_THAT(handler.take(), ElementsAre("aten::index 7"));
  const at::NoGradGuard no_grad;
  at::_foreach_add_({plain, weight}, 1);
  EXPECT_THAT(handler.take(), ElementsAre("aten::_foreach_add_ 1!"));
}

TEST_F(TensorMarks, AViewIsNoUseButCarriesTheMark) {
  const std::vector<at::Tensor> views = {weight.t(),
                                         weight.view({3, 2}),
                                         weight.reshape({6}),
                                         weight[0],
                                         weight.slice(1, 0, 2),
                                         weight.chunk(2)[1],
                                         weight.split(1)[0],
                                         weight.unbind()[1],
                                         weight.narrow(1, 1, 2),
                                         weight.expand({4, 2, 3}),
                                         weight.permute({1, 0}),
                                         weight.as_strided({2}, {1}),
                                         weight.diagonal(),
                                         weight.unfold(1, 2, 1),
                                         weight.detach(),
                                         weight.alias(),
                                         weight.data(),
                                         weight.variable_data(),
                                         weight.contiguous(),
                                         weight.to(at::kFloat),
                                         weight.flatten(),
                                         weight.mT(),
                                         weight.t().chunk(3)[2].detach()};
  EXPECT_THAT(handler.take(), IsEmpty());
  for (const auto& view : views) {
    view.sum();
    EXPECT_THAT(handler.take(), ElementsAre("aten::sum 1")) << view.sizes();
  }
}

TEST_F(TensorMarks, AViewThatMustCopyIsAUse) {
  weight.t().contiguous();
  EXPECT_THAT(handler.take(), SizeIs(1));
  weight.to(at::kDouble);
  EXPECT_THAT(handler.take(), ElementsAre("aten::_to_copy 1"));
  weight.t().reshape({6});
  EXPECT_THAT(handler.take(), SizeIs(1));
}

TEST_F(TensorMarks, CopiesAndGradientsAreNotMarked) {
  const auto copy = weight.clone();
  (weight * weight).sum().backward();
  const auto gradient = weight.grad();
  handler.take();
  copy + gradient;
  EXPECT_THAT(handler.take(), IsEmpty());
}

TEST_F(TensorMarks, TellWritesFromReads) {
  const at::NoGradGuard no_grad;
  weight.add_(1);
  weight[0].fill_(2);
  auto output = weight;
  at::add_out(output, plain, plain);
  plain.copy_(weight);
  torch::nn::init::zeros_(weight);
  EXPECT_THAT(handler.take(), ElementsAre("aten::add_ 1!", "aten::fill_ 1!", "aten::add 1!", "aten::copy_ 1",
                                          "aten::zero_ 1!"));
}

TEST_F(TensorMarks, LeaveAutogradAlone) {
  const auto twin = matrix().set_requires_grad(true);
  const auto loss = [&](const at::Tensor& w) { return (w.t().mm(plain).tanh() * w[0]).sum(); };
  loss(twin).backward();
  loss(weight).backward();
  EXPECT_TRUE(weight.grad().equal(twin.grad()));
  EXPECT_TRUE(weight.is_leaf());
}

TEST_F(TensorMarks, AnnounceWhatBackwardUses) {
  const auto input = matrix().set_requires_grad(true);
  const auto output = at::linear(input, weight);
  handler.take();
  output.sum().backward();
  EXPECT_THAT(handler.take(), SizeIs(1)) << "the gradient of the input is made from the weight";
  at::linear(plain, weight).sum().backward();
  EXPECT_THAT(handler.take(), ElementsAre("aten::linear 1")) << "that of the weight is not";
}

TEST_F(TensorMarks, WorkWithoutGradientsAndUnderAutocast) {
  {
    const at::NoGradGuard no_grad;
    weight.sum();
  }
  {
    const c10::InferenceMode inference;
    weight.sum();
  }
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto product = at::mm(weight, weight.t());
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(product.scalar_type(), at::kBFloat16);
  EXPECT_THAT(handler.take(), ElementsAre("aten::sum 1", "aten::sum 1", "aten::mm 1 1"));
}

TEST_F(TensorMarks, SeeOtherThreads) {
  std::thread([&] { weight.sum(); }).join();
  EXPECT_THAT(handler.take(), ElementsAre("aten::sum 1"));
}

TEST_F(TensorMarks, AHandlersOwnOperatorsAreNotAnnounced) {
  handler.instead = [&](OperatorCall& call) {
    weight.sum();
    call.run();
    weight.sum();
  };
  weight.exp();
  EXPECT_THAT(handler.take(), ElementsAre("aten::exp 1"));
  weight.exp();
  EXPECT_THAT(handler.take(), ElementsAre("aten::exp 1"));
}

TEST_F(TensorMarks, AHandlerMayGiveOtherResultsAndAutogradFollows) {
  handler.instead = [](OperatorCall& call) {
    if (call.name() != "aten::exp") return;
    call.set_results({call.arguments()[0].toTensor() * 5});
  };
  const auto output = weight.exp();
  EXPECT_TRUE(output.equal(plain * 5));
  output.sum().backward();
  EXPECT_TRUE(weight.grad().equal(at::full({2, 3}, 5.0f)));
  EXPECT_TRUE(weight.neg().equal(-plain));
}

TEST_F(TensorMarks, AHandlerMayChangeArgumentsAndResults) {
  handler.instead = [](OperatorCall& call) {
    call.arguments()[1] = call.arguments()[1].toTensor().to(at::kDouble);
    call.run();
    EXPECT_TRUE(call.arguments().empty());
    call.results()[0] = call.results()[0].toTensor() + 1;
  };
  const auto sum = weight + plain;
  EXPECT_EQ(sum.scalar_type(), at::kDouble);
  EXPECT_TRUE(sum.equal((plain + plain + 1).to(at::kDouble)));
}

TEST_F(TensorMarks, AHandlerMustGiveAllResults) {
  handler.instead = [](OperatorCall& call) { call.set_results({}); };
  EXPECT_THAT([&] { weight.exp(); }, ThrowsMessage<ConfigError>(HasSubstr("aten::exp")));
}

TEST_F(TensorMarks, ErrorsOfAHandlerComeOutOfTheOperator) {
  handler.instead = [](OperatorCall&) { throw DataError("test", {.what = "lost"}); };
  EXPECT_THAT([&] { weight.exp(); }, ThrowsMessage<DataError>(HasSubstr("lost")));
  handler.instead = nullptr;
  handler.take();
  weight.exp();
  EXPECT_THAT(handler.take(), SizeIs(1)) << "the exclusion outlived the exception";
}

// One gathers a weight, the other takes over the operator: whichever was first, gathering comes before.
TEST_F(TensorMarks, AllHandlersAreToldBeforeOneReplacesTheOperator) {
  RecordingHandler second;
  const TensorMark second_mark(weight, second, 2);
  int replaced = 0;
  handler.instead = [&](OperatorCall& call) {
    EXPECT_THAT(second.take(), ElementsAre("aten::exp 2"));
    call.run();
    ++replaced;
  };
  second.instead = [](OperatorCall&) { ADD_FAILURE() << "asked after the operator had run"; };
  weight.exp();
  EXPECT_EQ(replaced, 1);
  EXPECT_THAT(handler.take(), ElementsAre("aten::exp 1"));
  const auto other = at::ones({2, 3});
  const TensorMark other_mark(other, handler, 3);
  handler.instead = second.instead = nullptr;
  weight + other;
  EXPECT_THAT(handler.take(), ElementsAre("aten::add 1 3"));
  EXPECT_THAT(second.take(), ElementsAre("aten::add 2"));
}

TEST(TensorMark, TakesNothingAwayAndLeavesNothingBehind) {
  const auto weight = matrix().set_requires_grad(true);
  weight.sum().backward();
  const auto keys = weight.key_set();
  auto* const impl = weight.unsafeGetTensorImpl();
  const auto* data = weight.const_data_ptr();
  const auto view = weight.slice(1, 1).detach();
  int calls = 0;
  weight.register_hook([&](const at::Tensor&) { ++calls; });
  RecordingHandler handler;
  {
    const TensorMark mark(weight, handler), view_mark(view, handler), again(weight, handler);
    EXPECT_TRUE(mark.is_intact());
    EXPECT_EQ(weight.unsafeGetTensorImpl(), impl);
    EXPECT_EQ(weight.const_data_ptr(), data);
    EXPECT_EQ(view.storage_offset(), 1);
    EXPECT_EQ(view.sizes(), at::IntArrayRef({2, 2}));
    EXPECT_TRUE(weight.requires_grad());
    EXPECT_TRUE(weight.grad().defined());
    weight.sum().backward();
    EXPECT_EQ(calls, 1);
  }
  handler.take();
  EXPECT_EQ(weight.key_set(), keys);
  weight.sum();
  view.sum();
  EXPECT_THAT(handler.take(), IsEmpty());
}

TEST(TensorMark, StaysUntilTheLastOneOfItsTensorGoes) {
  RecordingHandler handler;
  const auto weight = matrix();
  const auto late_view = [&] { return weight[0]; };
  auto first = std::make_unique<TensorMark>(weight, handler, 1);
  const TensorMark second(weight, handler, 2);
  first.reset();
  late_view().sum();
  EXPECT_THAT(handler.take(), ElementsAre("aten::sum 2"));
}

TEST(TensorMark, ViewsMayOutliveIt) {
  RecordingHandler handler;
  const auto weight = matrix();
  at::Tensor view;
  {
    const TensorMark mark(weight, handler);
    view = weight[0];
  }
  EXPECT_FLOAT_EQ(view.sum().item<float>(), 6);
  EXPECT_THAT(handler.take(), IsEmpty());
}

TEST(TensorMark, KnowsWhenItsModuleWasConverted) {
  RecordingHandler handler;
  torch::nn::Linear layer(3, 2);
  const TensorMark mark(layer->weight, handler);
  layer->to(at::kFloat);
  EXPECT_TRUE(mark.is_intact());
  layer->to(at::kDouble);
  EXPECT_FALSE(mark.is_intact());
}

TEST(TensorMark, RefusesWhatHasNoStorage) {
  RecordingHandler handler;
  EXPECT_THAT([&] { TensorMark(at::Tensor(), handler); }, ThrowsMessage<ConfigError>(HasSubstr("undefined")));
  EXPECT_THROW(TensorMark(at::eye(2).to_sparse(), handler), ConfigError);
}

}  // namespace
}  // namespace lockstep
