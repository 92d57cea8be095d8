// Gives a test an environment that holds only the launcher variables it names.
#pragma once

#include <map>
#include <optional>
#include <string>

#include <lockstep/base/env.h>

namespace lockstep::testing {

using Variables = std::map<std::string, std::string>;

/// While it lives, of the variables any launcher sets only `variables` are set; then all are as before.
class ScopedVariables {
 public:
  explicit ScopedVariables(const Variables& variables) {
    for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK",
                             "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
                             "LOCKSTEP_LAUNCHED", "OMP_NUM_THREADS", "LSB_JOBID", "LSB_DJOB_RANKFILE"}) {
      replace(name, std::nullopt);
    }
    for (const char* prefix :
         {"SLURM_", "JSM_NAMESPACE_", "OMPI_", "PMI_", "PMIX_", "MPI_LOCAL", "TPU_", "PJRT_"})
      for (const auto& [name, value] : env::with_prefix(prefix)) replace(name, std::nullopt);
    for (const auto& [name, value] : variables) replace(name, value);
  }
  ScopedVariables(const ScopedVariables&) = delete;
  ScopedVariables& operator=(const ScopedVariables&) = delete;
  ~ScopedVariables() {
    for (const auto& [name, value] : before_) assign(name, value);
  }

 private:
  static void assign(const std::string& name, const std::optional<std::string>& value) {
    value ? env::set(name, *value) : env::unset(name);
  }
  void replace(const std::string& name, const std::optional<std::string>& value) {
    before_.try_emplace(name, env::get(name));
    assign(name, value);
  }

  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace lockstep::testing
