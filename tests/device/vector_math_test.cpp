#include "device/vector_math.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <set>
#include <string>

#include <ATen/record_function.h>

#include <lockstep/torch.h>

namespace lockstep {
namespace {

using ::testing::Ge;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;

std::filesystem::path headers_of_libtorch() {
  ::Dl_info library{};
  ::dladdr(reinterpret_cast<const void*>(&at::globalContext), &library);
  return std::filesystem::canonical(library.dli_fname).parent_path().parent_path() / "include";
}

std::set<std::string> called;

std::unique_ptr<at::ObserverContext> note_call(const at::RecordFunction& call) {
  if (!call.inputs().empty() && call.inputs()[0].isTensor())
    called.insert(std::string(call.name()) + " " + c10::toString(call.inputs()[0].toTensor().scalar_type()));
  return nullptr;
}

// The race of first calls needs thousands of processes to be seen: what is tested is that every call is made.
TEST(VectorMath, FunctionsThatLibTorchTakesFromMklAreCalledInBothTypes) {
  std::set<std::string> expected;
  std::ifstream header(headers_of_libtorch() / "ATen/cpu/vml.h");
  const std::regex row("IMPLEMENT_VML_MKL\\((\\w+), \\w+\\)");
  for (std::string line; std::getline(header, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, row) || match[1] == "op") continue;  // others are comments
    for (const auto* type : {" Float", " Double"}) expected.insert("aten::" + match[1].str() + type);
  }
  ASSERT_THAT(expected, SizeIs(Ge(30)));
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(note_call).needsInputs(true));
  detail::choose_vector_math();
  at::removeCallback(handle);
  EXPECT_THAT(called, IsSupersetOf(expected));
}

}  // namespace
}  // namespace lockstep
