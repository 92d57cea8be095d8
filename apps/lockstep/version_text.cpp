#include "version_text.h"

#include <lockstep/base/build_facts.h>

#include "lockstep_commit.h"

namespace {

std::string fact_line(const std::string& name, const std::string& text) {
  constexpr std::size_t kWidth = 13;
  return "\n" + name + ":" + std::string(kWidth - name.size(), ' ') + text;
}

}  // namespace

std::string built_commit() { return kLockstepCommit; }

std::string version_text() {
  const auto& facts = lockstep::build_facts();
  const auto commit = built_commit();
  return "lockstep " + facts.version + fact_line("commit", commit.empty() ? "unknown" : commit) +
         fact_line("LibTorch", facts.torch_version + ", " + facts.torch_folder) +
         fact_line("C++ ABI", facts.abi) + fact_line("compiler", facts.compiler) +
         fact_line("build type", facts.build_type) +
         fact_line("CUDA library", facts.cuda.empty() ? "not built" : "built for CUDA " + facts.cuda) +
         fact_line("built on", facts.system);
}
