// GradientReducer beside c10d's Reducer: the same gradients, to the bit, in every mode.
#include <gtest/gtest.h>

#include <lockstep/testing/run_ranks.h>

#include "../support/c10d_reducer.h"
#include "ddp_support.h"

namespace lockstep {
namespace {

using testing::run_ranks;

struct ParityMode {
  const char* name;
  Ddp options;
};

const std::vector<ParityMode> kParityModes{
    {"one bucket", {}},
    {"a bucket per parameter", {.bucket_cap_mb = 0.00001}},
    {"few buckets", {.bucket_cap_mb = 0.001}},
    {"views", {.gradient_as_bucket_view = true}},
    {"views of a bucket per parameter", {.bucket_cap_mb = 0.00001, .gradient_as_bucket_view = true}},
    {"unused", {.find_unused_parameters = true}},
    {"unused, a bucket per parameter", {.bucket_cap_mb = 0.00001, .find_unused_parameters = true}},
    {"unused, views", {.find_unused_parameters = true, .gradient_as_bucket_view = true}},
    {"static", {.static_graph = true}},
    {"static, a bucket per parameter", {.bucket_cap_mb = 0.00001, .static_graph = true}},
    {"static, views", {.static_graph = true, .gradient_as_bucket_view = true}}};

// Parameters that lie in several ways, one of which is used twice, and one sometimes not at all.
struct ParityNet : torch::nn::Module {
  explicit ParityNet(at::ScalarType dtype) {
    const std::lock_guard lock(generator_mutex);
    torch::manual_seed(7);
    convolution = register_module("convolution", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)));
    pointwise = register_module("pointwise", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 1)));
    shared = register_module("shared", torch::nn::Linear(4, 4));
    rest = register_module("rest", torch::nn::Linear(4, 4));
    scale = register_parameter("scale", at::ones({}));
    convolution->weight.set_data(convolution->weight.contiguous(at::MemoryFormat::ChannelsLast));
    to(dtype);
  }

  at::Tensor loss(const at::Tensor& images, bool uses_rest) {
    auto hidden = pointwise->forward(convolution->forward(images).relu()).mean({2, 3});
    hidden = shared->forward(shared->forward(hidden).tanh());
    if (uses_rest) hidden = rest->forward(hidden);
    return (hidden * scale).pow(2).sum();
  }

  torch::nn::Conv2d convolution{nullptr}, pointwise{nullptr};
  torch::nn::Linear shared{nullptr}, rest{nullptr};
  at::Tensor scale;
};

at::Tensor images_of(const Communicator& comm, int pass, at::ScalarType dtype) {
  return at::arange(2 * 3 * 6 * 6, at::kFloat)
      .view({2, 3, 6, 6})
      .mul(0.3 + 0.1 * pass + comm.rank())
      .sin()
      .to(dtype, false, false, at::MemoryFormat::ChannelsLast);
}

void expect_equal_gradients(const torch::nn::Module& ours, const torch::nn::Module& theirs,
                            const std::string& when) {
  const auto expected = theirs.named_parameters();
  for (const auto& parameter : ours.named_parameters()) {
    const auto& gradient = parameter.value().grad();
    const auto& other = expected[parameter.key()].grad();
    ASSERT_EQ(gradient.defined(), other.defined()) << parameter.key() << ", " << when;
    if (!gradient.defined()) continue;
    EXPECT_TRUE(gradient.equal(other)) << parameter.key() << ", " << when;
    EXPECT_EQ(gradient.strides(), other.strides()) << parameter.key() << ", " << when;
  }
}

// Gradients are cleared, kept for another averaged pass, or come of local passes first.
void compare(const Communicator& comm, const ParityMode& mode, at::ScalarType dtype) {
  const bool may_leave_out = mode.options.find_unused_parameters;
  ParityNet ours(dtype), theirs(dtype);
  DdpEngine engine(ours, comm, mode.options);
  test::C10dDdp reference(theirs, comm, mode.options);
  for (int pass = 0; pass < 8; ++pass) {
    const auto input = images_of(comm, pass, dtype);
    // On all ranks, on none, on some.
    const bool uses_rest = !may_leave_out || pass % 3 == 0 || (pass % 3 == 1 && comm.rank() == 0);
    if (pass % 4 == 2) {
      ours.loss(input, true).backward();
      theirs.loss(input, true).backward();
    }
    engine.backward(ours.loss(input, uses_rest));
    reference.backward(theirs.loss(input, uses_rest));
    expect_equal_gradients(ours, theirs, std::string(mode.name) + ", pass " + std::to_string(pass));
    if (pass % 4 == 0 && !may_leave_out) continue;
    for (auto* const net : {&ours, &theirs})
      for (auto& parameter : net->parameters()) parameter.mutable_grad().reset();
  }
}

class DdpParity : public ::testing::TestWithParam<int> {};

TEST_P(DdpParity, GradientsAreThoseOfC10d) {
  for (const auto& mode : kParityModes)
    run_ranks(GetParam(), [&](const Communicator& comm) { compare(comm, mode, at::kFloat); });
}

TEST_P(DdpParity, GradientsAreThoseOfC10dInHalfPrecision) {
  for (const auto& mode : kParityModes)
    run_ranks(GetParam(), [&](const Communicator& comm) { compare(comm, mode, at::kBFloat16); });
}

INSTANTIATE_TEST_SUITE_P(Worlds, DdpParity, ::testing::Values(2, 3));

// Two parameters whose gradients share memory: autograd may give one tensor to both.
TEST(DdpReducer, GradientsThatShareMemoryAreAveragedOnce) {
  struct Pair : torch::nn::Module {
    Pair() {
      first = register_parameter("first", at::ones({4}));
      second = register_parameter("second", at::ones({2, 2}));
    }
    at::Tensor first, second;
  };
  for (const double cap_mb : {25.0, 0.00001}) {
    run_ranks(2, [&](const Communicator& comm) {
      Pair pair;
      DdpEngine engine(pair, comm, {.bucket_cap_mb = cap_mb});
      for (int pass = 0; pass < 3; ++pass) {
        const auto loss = (pair.first + pair.second.view({4})).pow(2).sum() * (comm.rank() + 1);
        engine.backward(loss);
        EXPECT_TRUE(pair.first.grad().equal(at::full({4}, 6.0f)));
        EXPECT_TRUE(pair.second.grad().equal(at::full({2, 2}, 6.0f)));
        const auto shared = at::full({4}, comm.rank() + 1.0f);
        pair.first.mutable_grad() = shared;
        pair.second.mutable_grad() = shared.view({2, 2});
        engine.backward((pair.first.sum() + pair.second.sum()) * 0);
        EXPECT_TRUE(pair.first.grad().equal(at::full({4}, 1.5f))) << pair.first.grad();
        pair.first.mutable_grad().reset();
        pair.second.mutable_grad().reset();
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
