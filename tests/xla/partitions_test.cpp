// Several devices of a process that are one: who holds what, and that XLA adds up over them. These tests hold
// for one partition, too; LOCKSTEP_TEST_PARTITIONS says how many there are.
#include <gmock/gmock.h>

#include <lockstep/base/error.h>
#include <lockstep/device/captured_step.h>

#include "xla/device.h"
#include "xla/device_case.h"
#include "xla/run_graph.h"
#include "xla/test_client.h"

namespace lockstep::xla {
namespace {

using namespace test;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::int64_t partitions() { return device_client()->partitions(); }

Tensors in_rows(const Tensors& tensors) {
  const DealtOut dealt_out;
  return on_device(tensors);
}

std::vector<std::int64_t> sizes_in(const Buffer& buffer, std::int64_t partition) {
  LOCKSTEP_PJRT_ARGS(PJRT_Buffer_Dimensions_Args, args);
  args.buffer = buffer.parts()[static_cast<std::size_t>(partition)];
  const auto& api = device_client()->api();
  check(api, api.PJRT_Buffer_Dimensions(&args), "look at an array");
  return {args.dims, args.dims + args.num_dims};
}

void expect_in_each(const at::Tensor& tensor, const std::vector<std::int64_t>& sizes) {
  const std::lock_guard lock(device_mutex());
  const auto buffer = read(tensor).node->buffer;
  for (std::int64_t i = 0; i < partitions(); ++i) EXPECT_EQ(sizes_in(*buffer, i), sizes) << "partition " << i;
}

TEST(XlaPartitions, ShareTheRowsOfABatch) {
  const auto host = at::arange(24, at::kFloat).view({8, 3});
  const auto rows = in_rows({host})[0];
  expect_in_each(rows, {8 / partitions(), 3});
  EXPECT_TRUE(rows.cpu().equal(host));
}

TEST(XlaPartitions, HoldAllOfWhatIsNoBatch) {
  const auto host = at::arange(24, at::kFloat).view({8, 3});
  const auto copies = on_device({host})[0];
  expect_in_each(copies, {8, 3});
  EXPECT_TRUE(copies.cpu().equal(host));
}

TEST(XlaPartitions, HoldAllOfRowsThatTheyCannotShareEvenly) {
  const auto host = at::arange(21, at::kFloat).view({7, 3});
  const auto held = in_rows({host, at::scalar_tensor(2.5)});
  if (partitions() > 1) expect_in_each(held[0], {7, 3});
  EXPECT_TRUE(held[0].cpu().equal(host));
  EXPECT_EQ(held[1].item<float>(), 2.5);
}

// Results are copies; a program that adds up over rows has an all-reduce where they are dealt out.
TEST(XlaPartitions, AddUpWithinTheProgram) {
  const auto x = at::rand({8, 5}), w = at::rand({5, 4});
  const auto rows = in_rows({x})[0];
  const auto weight = on_device({w})[0];
  const auto product = rows.t().mm(rows.mm(weight));
  expect_close(product.cpu(), x.t().mm(x.mm(w)), "sum over rows");
  expect_in_each(product, {5, 4});
}

TEST(XlaPartitions, RunProgramsWithAnAllReduce) {
  const std::string sharding = partitions() == 1
                                   ? ""
                                   : " {mhlo.sharding = \"{devices=[" + std::to_string(partitions()) +
                                         "]<=[" + std::to_string(partitions()) + "]}\"}";
  const std::string copied = partitions() == 1 ? "" : " {mhlo.sharding = \"{replicated}\"}";
  const auto program = Executable::compile(
      device_client(),
      "func.func public @main(%a: tensor<8xf32>" + sharding + ") -> (tensor<f32>" + copied +
          ") {\n  %z = stablehlo.constant dense<0.0> : tensor<f32>\n  %0 = stablehlo.reduce(%a "
          "init: %z) applies stablehlo.add across dimensions = [0] : (tensor<8xf32>, "
          "tensor<f32>) -> tensor<f32>\n  return %0 : tensor<f32>\n}\n");
  EXPECT_EQ(program->serialize().find("all-reduce") != std::string::npos, partitions() > 1);
}

// As the last batch of an epoch may be held by all, and the next one is shared again.
TEST(XlaPartitions, ReplayWhateverPartitionsHold) {
  const auto total = at::zeros({3}, at::TensorOptions(kDevice).dtype(at::kFloat));
  CapturedStep step(
      kDevice,
      [&](const Tensors& inputs) {
        total.add_(inputs[0].sum(0));
        return Tensors{total * 1};
      },
      /*warm_up=*/1);
  const auto ones = at::ones({8, 3});
  for (int i = 0; i < 3; ++i) step(in_rows({ones}));
  step(on_device({ones}));
  EXPECT_TRUE(step(in_rows({ones}))[0].cpu().equal(at::full({3}, 40.0)));
  EXPECT_EQ(step.refusal(), "");
}

TEST(XlaPartitions, AreNoMoreThanThereAreDevices) {
  EXPECT_THAT(
      [] {
        Client(std::shared_ptr<const Plugin>(device_client(), &device_client()->plugin()),
               {{"cpu_device_count", "2"}}, 3);
      },
      ThrowsMessage<ConfigError>(
          HasSubstr("fewer devices than devices_per_process says; expected at most 2; got 3")));
}

}  // namespace
}  // namespace lockstep::xla
