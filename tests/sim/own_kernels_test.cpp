// Who calls kernels of our own on a device, and with what; their numbers are those of the CPU.
#include "sim/own_kernels.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include <c10/core/StreamGuard.h>
#include <lockstep/device/cross_entropy.h>

#include "comm/collectives/device_collectives.h"
#include "device/own_kernels.h"
#include "parallel/sharded/quantized_record.h"
#include "sim/installed.h"

namespace lockstep::sim {
namespace {

using detail::CodeBits;
using detail::copy_in;
using detail::RecordFormat;
using detail::TensorCopy;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SimOwnKernels : public SimDeviceTest {
 protected:
  SimOwnKernels() {
    torch::manual_seed(1);
    take_own_launches();
  }
  OwnKernels kernels_;
};

TensorCopy copy_of(std::int64_t elements, at::ScalarType from, at::ScalarType to) {
  return {.from = on_sim(torch::randn({elements}).to(from)), .to = on_sim(at::zeros({elements}, to))};
}

void expect_copied(const std::vector<TensorCopy>& copies) {
  for (const auto& copy : copies)
    EXPECT_TRUE(at::equal(on_cpu(copy.to), on_cpu(copy.from).to(copy.to.scalar_type())));
}

TEST_F(SimOwnKernels, CopyInTakesTensorsOfTheSameTypesAtOnce) {
  const std::vector<TensorCopy> copies{copy_of(5, at::kFloat, at::kFloat), copy_of(0, at::kFloat, at::kFloat),
                                       copy_of(70, at::kBFloat16, at::kFloat),
                                       copy_of(11, at::kFloat, at::kFloat),
                                       copy_of(3, at::kDouble, at::kHalf)};
  copy_in(copies);
  EXPECT_THAT(take_own_launches(), ElementsAre("copy_scaled 2 tensors of 16", "copy_scaled 1 tensors of 3",
                                               "copy_scaled 1 tensors of 70"));
  expect_copied(copies);
}

TEST_F(SimOwnKernels, CopyInLeavesToLibTorchWhatTheKernelDoesNotKnow) {
  const std::vector<TensorCopy> copies{
      copy_of(7, at::kLong, at::kFloat),
      {.from = on_sim(torch::randn({4, 6})).t(), .to = on_sim(at::zeros({6, 4}))}};
  copy_in(copies);
  EXPECT_THAT(take_own_launches(), IsEmpty());
  expect_copied(copies);
}

TEST_F(SimOwnKernels, OfWhichAStreamDoesNotWaitAreReported) {
  const std::vector<TensorCopy> copies{copy_of(64, at::kFloat, at::kFloat)};
  copies[0].from.mul_(2);  // on the default stream
  {
    const c10::StreamGuard guard(stream(0, 3));
    copy_in(copies);
  }
  const auto reports = take_reports();
  synchronize(kSim);
  ASSERT_FALSE(reports.empty());
  EXPECT_THAT(reports.front(), HasSubstr("read before ready: own copy_scaled 1 tensors of 64"));
}

TEST_F(SimOwnKernels, RecordsAreQuantizedByTheKernel) {
  constexpr std::int64_t kElements = 700;
  for (const auto bits : {CodeBits::k8, CodeBits::k4}) {
    const RecordFormat format(kElements, bits);
    const auto values = torch::randn({kElements}).to(at::kBFloat16), sums = torch::randn({kElements});
    const auto record = at::zeros({format.bytes()}, at::kByte), read = at::zeros({kElements});
    const auto sim_record = on_sim(record), sim_read = on_sim(read), sim_sums = on_sim(sums);
    format.write(values, record);
    format.read(record, read);
    format.add(record, sums);
    format.write(on_sim(values), sim_record);
    format.read(sim_record, sim_read);
    format.add(sim_record, sim_sums);
    const auto number = std::to_string(static_cast<int>(bits));
    EXPECT_THAT(take_own_launches(),
                ElementsAre("quantize 700 to " + number + " bits", "dequantize 700 of " + number + " bits",
                            "dequantize 700 of " + number + " bits, added"));
    EXPECT_TRUE(at::equal(on_cpu(sim_record), record));
    EXPECT_TRUE(at::equal(on_cpu(sim_read), read));
    EXPECT_TRUE(at::equal(on_cpu(sim_sums), sums));
  }
}

// A part of a record has the codes and scales that the whole has there.
TEST_F(SimOwnKernels, APartOfARecordIsWrittenAndReadInItsPlace) {
  const RecordFormat format(1000, CodeBits::k4);
  const auto values = torch::randn({1000});
  const auto record = at::zeros({format.bytes()}, at::kByte), sim_record = on_sim(record);
  const auto read = at::zeros({488}), sim_read = on_sim(read);
  format.write_part(values.narrow(0, 512, 488), record, 512);
  format.read_part(record, 512, read);
  format.write_part(on_sim(values).narrow(0, 512, 488), sim_record, 512);
  format.read_part(sim_record, 512, sim_read);
  EXPECT_THAT(take_own_launches(), ElementsAre("quantize 488 to 4 bits", "dequantize 488 of 4 bits"));
  EXPECT_TRUE(at::equal(on_cpu(sim_record), record));
  EXPECT_TRUE(at::equal(on_cpu(sim_read), read));
}

TEST_F(SimOwnKernels, SumsOfRowsAreOrderedAsOnTheCpu) {
  const auto rows = torch::randn({5, 300});
  const auto sum = detail::reduced_rows(on_sim(rows), ReduceOp::kAvg);
  EXPECT_THAT(take_own_launches(), ElementsAre("sum_rows 5 of 300"));
  EXPECT_TRUE(at::equal(on_cpu(sum), detail::reduced_rows(rows, ReduceOp::kAvg)));
}

TEST_F(SimOwnKernels, CrossEntropyAndItsGradientReadTheScoresOnce) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto host = torch::randn({6, 700}).to(dtype);
    auto targets = at::randint(700, {6}, at::kLong);
    targets[2] = -100;
    auto expected = host.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).set_requires_grad(true);
    auto scores = on_sim(host).set_requires_grad(true);
    const auto loss = cross_entropy(expected, targets), sim_loss = cross_entropy(scores, on_sim(targets));
    loss.backward();
    sim_loss.backward();
    EXPECT_THAT(take_own_launches(), ElementsAre("cross_entropy 6 x 700", "cross_entropy_gradient 6 x 700"));
    EXPECT_TRUE(at::allclose(on_cpu(sim_loss.detach()), loss.detach(), 1e-5, 1e-6));
    const double tolerance = dtype == at::kFloat ? 1e-5 : 1e-2;
    EXPECT_TRUE(at::allclose(on_cpu(scores.grad()).to(at::kFloat), expected.grad(), tolerance, 1e-6));
  }
}

TEST_F(SimOwnKernels, WithoutThemLibTorchsOperatorsDo) {
  detail::set_own_kernels(kDeviceType, nullptr);
  const std::vector<TensorCopy> copies{copy_of(5, at::kFloat, at::kBFloat16)};
  copy_in(copies);
  cross_entropy(on_sim(torch::randn({2, 3})), on_sim(at::zeros({2}, at::kLong)));
  EXPECT_THAT(take_own_launches(), IsEmpty());
  expect_copied(copies);
}

}  // namespace
}  // namespace lockstep::sim
