#include "xla/test_client.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include <lockstep/base/env.h>

namespace lockstep::test {
namespace {

// Of the environment, for tools/check_xla_plugins.sh, or the one that tools/xla.sh fetches.
const char* test_plugin() {
  const char* const named = std::getenv("LOCKSTEP_XLA_TEST_PLUGIN");
  return named != nullptr ? named : LOCKSTEP_XLA_TEST_PLUGIN;
}

}  // namespace

std::shared_ptr<const xla::Client> test_client() {
  const auto partitions = static_cast<int>(env::get_int("LOCKSTEP_TEST_PARTITIONS", 1));
  static const auto client = std::make_shared<const xla::Client>(
      xla::Plugin::load(test_plugin()),
      xla::CreateOptions{{"cpu_device_count", std::to_string(std::max(partitions, 2))}}, partitions);
  return client;
}

std::shared_ptr<xla::Buffer> array_of(const std::vector<float>& values) {
  return xla::Buffer::copy_of(test_client(), 0, values.data(), PJRT_Buffer_Type_F32,
                              std::vector<std::int64_t>{static_cast<std::int64_t>(values.size())});
}

std::vector<float> values_of(const xla::Buffer& buffer, std::size_t count) {
  std::vector<float> values(count);
  buffer.read(values.data(), count * sizeof(float));
  return values;
}

std::string triple_text(int count, bool donates) {
  const auto type = "tensor<" + std::to_string(count) + "xf32>";
  return "func.func public @main(%a: " + type + (donates ? " {tf.aliasing_output = 0 : i32}" : "") + ") -> " +
         type + " {\n  %three = stablehlo.constant dense<3.0> : " + type +
         "\n  %0 = stablehlo.multiply %a, %three : " + type + "\n  return %0 : " + type + "\n}\n";
}

}  // namespace lockstep::test
