// Functions of the host that compiled programs call.
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <lockstep/base/error.h>
#include <lockstep/device/captured_step.h>

#include "xla/device.h"
#include "xla/host_call.h"
#include "xla/test_client.h"

namespace lockstep::xla {
namespace {

using TensorSpan = std::span<const at::Tensor>;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HostCall : public ::testing::Test {
 protected:
  void SetUp() override {
    install(test::test_client(), std::nullopt);
    static const bool is_enabled = (enable_host_calls(*test::test_client()), true);
    ASSERT_TRUE(is_enabled && can_call_host());
  }

  void TearDown() override {
    for (const int number : numbers_) remove_host_function(number);
  }

  int add(detail::XlaHostFunction function) {
    numbers_.push_back(add_host_function(std::move(function)));
    return numbers_.back();
  }

  static at::Tensor on_device(const at::Tensor& tensor) { return tensor.to(at::Device(at::kXLA, 0)); }
  static void record(int number, const std::vector<at::Tensor>& tensors) {
    record_host_call(number, tensors, /*ends_step=*/false);
  }

 private:
  std::vector<int> numbers_;
};

TEST_F(HostCall, IsPartOfTheProgram) {
  const int triple = add([](TensorSpan tensors) {
    for (const auto& tensor : tensors) tensor.mul_(3);
  });
  const auto small = on_device(at::ones({2, 3})), large = on_device(at::full({4}, 2.0, at::kDouble));
  synchronize_device(0);
  const auto runs = counts().runs;
  const auto sum = small + 1;
  record(triple, {sum, large});
  const auto after = sum + large.sum();
  EXPECT_TRUE(after.cpu().equal(at::full({2, 3}, 30.0, at::kDouble))) << after.cpu();
  EXPECT_TRUE(large.cpu().equal(at::full({4}, 6.0, at::kDouble)));
  EXPECT_EQ(counts().runs, runs + 1);
}

TEST_F(HostCall, GetsElementsInOrderOfViewsAndTypes) {
  std::string seen;
  const int look = add([&](TensorSpan tensors) {
    for (const auto& tensor : tensors) {
      seen += c10::str(tensor.scalar_type(), tensor.sizes(), " ", tensor.flatten()[1].item<double>(), ";");
      tensor.fill_(1);
    }
  });
  const auto matrix = on_device(at::arange(6, at::kInt).reshape({2, 3}));
  const auto column_wise = matrix.t();
  record(look, {column_wise, on_device(at::arange(3, at::kBFloat16)), on_device(at::arange(3, at::kLong))});
  EXPECT_TRUE(matrix.cpu().equal(at::ones({2, 3}, at::kInt)));
  EXPECT_EQ(seen, "Int[3, 2] 3;BFloat16[3] 1;Long[3] 1;");
}

TEST_F(HostCall, FollowsTheOneBefore) {
  std::vector<int> order;
  const int first = add([&](TensorSpan) { order.push_back(0); });
  const int second = add([&](TensorSpan) { order.push_back(1); });
  for (int program = 0; program < 5; ++program) {
    for (int i = 0; i < 4; ++i) record(i % 2 == 0 ? first : second, {on_device(at::ones({1 + i}))});
    synchronize_device(0);
  }
  (void)on_device(at::zeros({1})).item<float>();
  record(first, {on_device(at::ones({1}))});
  const auto last = on_device(at::ones({1}));
  record(second, {last});
  (void)last.cpu();
  ASSERT_EQ(order.size(), 22);
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<int>(i % 2)) << i;
}

// Replays and programs between them take turns as they were asked for.
TEST_F(HostCall, IsPartOfCapturedSteps) {
  std::string order;
  const int note = add([&](TensorSpan tensors) {
    order += std::to_string(tensors[0].item<int>());
    tensors[0].add_(1);
  });
  const auto sum = on_device(at::zeros({1}, at::kInt));
  CapturedStep step(
      sum.device(),
      [&](const CapturedStep::Tensors&) {
        record(note, {sum});
        sum.mul_(2);
        return CapturedStep::Tensors{};
      },
      /*warm_up=*/1);
  for (int i = 0; i < 4; ++i) {
    step({});
    record(note, {on_device(at::full({1}, 9, at::kInt))});
  }
  EXPECT_EQ(sum.cpu().item<int>(), 30);
  synchronize_device(0);
  (void)on_device(at::zeros({1})).cpu();
  EXPECT_EQ(step.replays(), 3) << step.refusal();
  EXPECT_EQ(order, "092969149");
}

TEST_F(HostCall, ThrowsWhatItsFunctionThrowsUntilTheFunctionIsGone) {
  int calls = 0;
  const int lost = add([&](TensorSpan) {
    ++calls;
    throw PeerLost("comm", {.what = "rank 7 is gone"});
  });
  const auto tensor = on_device(at::ones({3}));
  record(lost, {tensor});
  for (int i = 0; i < 2; ++i) {
    try {
      (void)(tensor + i).cpu();
      FAIL() << "nothing was thrown";
    } catch (const PeerLost& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 7 is gone"));
    }
  }
  EXPECT_THROW(record(lost, {tensor}), PeerLost);
  EXPECT_EQ(calls, 1);
}

TEST_F(HostCall, TakesTheLowestNumberThatIsFree) {
  const int first = add([](TensorSpan) {}), second = add([](TensorSpan) {});
  EXPECT_EQ(second, first + 1);
  remove_host_function(first);
  EXPECT_EQ(add([](TensorSpan) {}), first);
}

}  // namespace
}  // namespace lockstep::xla
