#include "xla/executable.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include <lockstep/base/error.h>

#include "support/expect_error.h"
#include "xla/test_client.h"

namespace lockstep::xla {
namespace {

using test::array_of;
using test::test_client;
using test::triple_text;
using test::values_of;
using ::testing::ElementsAre;

struct FreedByC {
  void operator()(void* memory) const { std::free(memory); }
};

std::shared_ptr<float> aligned_numbers(std::size_t count) {
  auto* const memory = static_cast<float*>(std::aligned_alloc(kHostAlignment, count * sizeof(float)));
  for (std::size_t i = 0; i < count; ++i) memory[i] = static_cast<float>(i);
  return {memory, FreedByC()};
}

// A thread of the plug-in may be the one that does it.
bool is_let_go(const std::weak_ptr<float>& watched) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!watched.expired() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return watched.expired();
}

TEST(XlaBuffer, HoldsACopyOfTheHostsArray) {
  std::vector<float> values{1, 2, 3};
  const auto buffer = array_of(values);
  values.assign(3, 0);
  EXPECT_THAT(values_of(*buffer, 3), ElementsAre(1, 2, 3));
}

TEST(XlaBuffer, SharesAlignedMemoryUntilItIsGone) {
  auto numbers = aligned_numbers(64);
  const std::weak_ptr<float> watched = numbers;
  const std::vector<std::int64_t> sizes{64};
  auto* const address = numbers.get();
  auto buffer = Buffer::view_of(test_client(), 0, address, PJRT_Buffer_Type_F32, sizes, std::move(numbers));
  EXPECT_EQ(buffer->address(), reinterpret_cast<std::uintptr_t>(address));
  EXPECT_FALSE(watched.expired());
  EXPECT_EQ(values_of(*buffer, 64)[63], 63.0F);
  buffer.reset();
  EXPECT_TRUE(is_let_go(watched));
}

TEST(XlaBuffer, CopiesMemoryThatIsNotAligned) {
  const auto numbers = aligned_numbers(64);
  const std::vector<std::int64_t> sizes{60};
  const auto buffer =
      Buffer::view_of(test_client(), 0, numbers.get() + 4, PJRT_Buffer_Type_F32, sizes, numbers);
  EXPECT_NE(buffer->address(), reinterpret_cast<std::uintptr_t>(numbers.get() + 4));
  EXPECT_EQ(values_of(*buffer, 60)[0], 4.0F);
}

TEST(XlaExecutable, RunsOnEitherDevice) {
  const auto program = Executable::compile(test_client(), triple_text(2));
  const std::vector<std::shared_ptr<Buffer>> first{array_of({1, 2})};
  EXPECT_THAT(values_of(*program->run(0, first).front(), 2), ElementsAre(3, 6));
  const std::vector<float> values{4, 5};
  const std::vector<std::int64_t> sizes{2};
  const std::vector<std::shared_ptr<Buffer>> second{
      Buffer::copy_of(test_client(), 1, values.data(), PJRT_Buffer_Type_F32, sizes)};
  EXPECT_THAT(values_of(*program->run(1, second).front(), 2), ElementsAre(12, 15));
}

TEST(XlaExecutable, OverwritesWhatIsDonated) {
  const auto program = Executable::compile(test_client(), triple_text(1024, /*donates=*/true));
  const std::vector<std::shared_ptr<Buffer>> inputs{array_of(std::vector<float>(1024, 2.0F))};
  const auto address = inputs.front()->address();
  const auto result = program->run(0, inputs).front();
  EXPECT_EQ(values_of(*result, 1024)[1000], 6.0F);
  EXPECT_EQ(result->address(), address);
  EXPECT_TRUE(inputs.front()->is_donated());
  test::expect_error<Error>([&] { values_of(*inputs.front(), 1024); }, {"read an array", "donated"});
}

TEST(XlaExecutable, LeavesOtherArgumentsAlone) {
  const auto program = Executable::compile(test_client(), triple_text(4));
  const std::vector<std::shared_ptr<Buffer>> inputs{array_of({1, 2, 3, 4})};
  program->run(0, inputs).front()->wait();
  EXPECT_FALSE(inputs.front()->is_donated());
  EXPECT_THAT(values_of(*inputs.front(), 4), ElementsAre(1, 2, 3, 4));
}

TEST(XlaExecutable, IsStoredAndLoaded) {
  const auto bytes = Executable::compile(test_client(), triple_text(3))->serialize();
  const auto program = Executable::deserialize(test_client(), bytes);
  const std::vector<std::shared_ptr<Buffer>> inputs{array_of({1, 2, 3})};
  EXPECT_THAT(values_of(*program->run(0, inputs).front(), 3), ElementsAre(3, 6, 9));
}

TEST(XlaExecutable, SaysWhatTheCompilerSays) {
  test::expect_error<Error>(
      [] { Executable::compile(test_client(), "func.func public @main() { nonsense }"); },
      {"compile a program", "nonsense"});
}

TEST(XlaClient, ReadsOptions) {
  EXPECT_TRUE(parse_create_options("").empty());
  EXPECT_EQ(parse_create_options("a=1,b=x=y"), (CreateOptions{{"a", "1"}, {"b", "x=y"}}));
  test::expect_error<ConfigError>([] { parse_create_options("a=1,=2"); }, {"NAME=VALUE", "\"=2\""});
  EXPECT_EQ(test_client()->platform(), "cpu");
  EXPECT_EQ(test_client()->device_count(), 2);
}

}  // namespace
}  // namespace lockstep::xla
