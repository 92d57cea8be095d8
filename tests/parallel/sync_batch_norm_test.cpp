// Synchronised modules on several ranks against plain ones on the batches of all ranks joined.
#include <lockstep/parallel/sync_batch_norm.h>

#include <ATen/autocast_mode.h>

#include <lockstep/testing/run_ranks.h>

#include "sync_batch_norm_support.h"

namespace lockstep {
namespace {

using testing::run_ranks;
using Sizes = std::vector<std::int64_t>;

// Rows of each rank: uneven, and none on one of three.
Sizes sizes_of(int ranks) { return ranks == 1 ? Sizes{9} : ranks == 2 ? Sizes{3, 6} : Sizes{4, 0, 5}; }

void expect_pass(const Communicator& comm, const Sizes& sizes, const NormPass& got, const NormPass& expected,
                 double tolerance) {
  expect_near(got.output, rows_of(expected.output, sizes, comm), tolerance, "output");
  expect_near(got.input_gradient, rows_of(expected.input_gradient, sizes, comm), tolerance,
              "gradient of the input");
  for (std::size_t i = 0; i < got.gradients.size(); ++i) {
    const auto sum = got.gradients[i].clone();
    comm.all_reduce(sum);
    expect_near(sum, expected.gradients[i], tolerance, "gradient of parameter " + std::to_string(i));
  }
}

const NormCase kPlain{"Batches1d", {5}};

class SyncBatchNormNumbers : public ::testing::TestWithParam<std::tuple<int, NormCase>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  const NormCase& norm() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(
    Ranks, SyncBatchNormNumbers,
    ::testing::Combine(::testing::Values(1, 2, 3),
                       ::testing::Values(kPlain, NormCase{"Sequences", {3, 4}}, NormCase{"Images", {3, 4, 2}},
                                         NormCase{"Volumes", {2, 2, 3, 2}},
                                         NormCase{"NotAffine", {3, 4, 2}, false},
                                         NormCase{"NotTracked", {3, 4, 2}, true, false},
                                         NormCase{"NeitherAffineNorTracked", {5}, false, false},
                                         NormCase{"CumulativeAverage", {5}, true, true, std::nullopt})),
    [](const auto& test) {
      return std::string(std::get<1>(test.param).name) + "On" + std::to_string(std::get<0>(test.param));
    });

TEST_P(SyncBatchNormNumbers, AreThoseOfOneProcess) {
  const auto sizes = sizes_of(ranks());
  run_ranks(ranks(), [&](const Communicator& comm) {
    auto reference = norm_model(norm()), model = norm_model(norm());
    const SyncBatchNorm sync(*model, comm);
    EXPECT_EQ(sync.size(), comm.size() > 1 ? 2u : 0u);
    for (int step = 0; step < 3; ++step) {
      const auto batch = norm_batch(9, norm().shape, step);
      const auto coefficients = norm_batch(9, norm().shape, 7 + step).cos();
      const auto expected = train_pass(reference, batch, coefficients);
      const auto got = train_pass(model, rows_of(batch, sizes, comm), rows_of(coefficients, sizes, comm));
      expect_pass(comm, sizes, got, expected, 1e-12);
    }
    expect_same_buffers(*model, *reference, 1e-12);
  });
}

// float32 keeps 24 bits: a sum of squares would leave nothing of a variance a million times smaller.
TEST(SyncBatchNorm, KeepsTheVarianceOfValuesFarFromZero) {
  run_ranks(2, [](const Communicator& comm) {
    torch::nn::BatchNorm1d norm(torch::nn::BatchNormOptions(4).momentum(1.0));
    const SyncBatchNorm sync(*norm, comm);
    const auto whole = norm_batch(12, {4}, 0, at::kFloat).add(5000);
    const auto exact = whole.to(at::kDouble).var(0);
    const auto output = norm->forward(rows_of(whole, {4, 8}, comm));
    EXPECT_TRUE(norm->running_var.to(at::kDouble).allclose(exact, 1e-3)) << norm->running_var / exact;
    EXPECT_TRUE(norm->running_mean.allclose(whole.mean(0), 1e-6));
    EXPECT_LT(output.abs().max().item<float>(), 4);
  });
}

class SyncBatchNormHalves : public ::testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, SyncBatchNormHalves, ::testing::Values(at::kHalf, at::kBFloat16),
                         [](const auto& test) { return std::string(c10::toString(test.param)); });

// Statistics and sums are float32, whatever the batches are: only results are rounded.
TEST_P(SyncBatchNormHalves, AreRoundedAtTheEnd) {
  const auto dtype = GetParam();
  const double epsilon = dtype == at::kHalf ? 1.0 / 1024 : 1.0 / 128;
  const NormCase test{"Images", {3, 4, 2}};
  for (const auto parameters : {at::kFloat, dtype}) {
    run_ranks(2, [&](const Communicator& comm) {
      torch::nn::BatchNorm2d norm(3), reference(3);
      norm->to(parameters);
      const SyncBatchNorm sync(*norm, comm);
      torch::nn::Sequential model(norm), whole(reference);
      const auto batch = norm_batch(9, test.shape, 0, dtype), weights = norm_batch(9, test.shape, 5, dtype);
      const auto expected = train_pass(whole, batch.to(at::kFloat), weights.to(at::kFloat));
      const auto got = train_pass(model, rows_of(batch, {3, 6}, comm), rows_of(weights, {3, 6}, comm));
      EXPECT_EQ(got.output.scalar_type(), dtype);
      expect_near(got.output, rows_of(expected.output, {3, 6}, comm).to(dtype), epsilon, "output");
      expect_near(got.input_gradient, rows_of(expected.input_gradient, {3, 6}, comm).to(dtype), 2 * epsilon,
                  "gradient of the input");
      EXPECT_EQ(got.gradients[0].scalar_type(), parameters);
      expect_near(norm->running_var, reference->running_var.to(parameters), epsilon, "running_var");
    });
  }
}

TEST(SyncBatchNorm, WorksUnderAutocast) {
  run_ranks(2, [](const Communicator& comm) {
    torch::nn::BatchNorm1d norm(5), reference(5);
    const SyncBatchNorm sync(*norm, comm);
    const auto batch = norm_batch(8, {5}, 0, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const auto output = norm->forward(rows_of(batch, {4, 4}, comm));
    const auto plain = reference->forward(batch);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    expect_near(output, rows_of(plain, {4, 4}, comm), 1.0 / 128, "output");
  });
}

TEST(SyncBatchNorm, KeepsTheMemoryFormat) {
  run_ranks(2, [](const Communicator& comm) {
    torch::nn::BatchNorm2d norm(3);
    const SyncBatchNorm sync(*norm, comm);
    const auto input =
        norm_batch(4, {3, 4, 2}, comm.rank(), at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
    input.set_requires_grad(true);
    const auto output = norm->forward(input);
    EXPECT_TRUE(output.is_contiguous(at::MemoryFormat::ChannelsLast));
    output.pow(2).sum().backward();
    EXPECT_TRUE(input.grad().is_contiguous(at::MemoryFormat::ChannelsLast));
  });
}

TEST(SyncBatchNorm, LeavesStatisticsAloneWhereAllBatchesAreEmpty) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = norm_model(kPlain);
    const SyncBatchNorm sync(*model, comm);
    const auto empty = at::empty({0, 5}, at::kDouble);
    const auto pass = train_pass(model, empty, empty);
    EXPECT_EQ(pass.output.sizes(), at::IntArrayRef({0, 5}));
    EXPECT_TRUE(pass.gradients[0].equal(at::zeros({5}, at::kDouble)));
    const auto buffers = model->named_buffers();
    EXPECT_TRUE(buffers["0.running_mean"].equal(at::zeros({5}, at::kDouble)));
    EXPECT_TRUE(buffers["0.running_var"].equal(at::ones({5}, at::kDouble)));
  });
}

}  // namespace
}  // namespace lockstep
