// What every ClusterEnvironment promises. A kind joins by one line in
// cluster_environment_contract_test.cpp.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/cluster/detect.h>

#include "cluster/scoped_variables.h"

namespace lockstep::testing {

/// One environment to try: how its launcher sets the scene, and what must be read from it.
struct EnvironmentCase {
  std::string kind;
  Variables variables = {};
  std::vector<std::string> integers = {};  ///< those of the variables that hold integers >= 0
  std::string chosen_by = {};  ///< the variable that chooses it; empty: it is chosen otherwise
  bool external = false;
  bool detected = true;  ///< else made by name
  std::string address = {};
  int port = 0;
  int world_size = 1;  ///< set_world_size() must reach it where the variables do not tell
  int global_rank = 0;
  int local_rank = 0;
  int node_rank = 0;
  std::optional<int> local_world_size = {};
  bool told_from_outside = true;  ///< world size and rank come from the variables
  int num_devices = 1;            ///< settings that validate_settings() accepts
  int num_nodes = 1;

  std::shared_ptr<ClusterEnvironment> make() const {
    return detected ? detect_environment() : make_environment(kind);
  }
};

inline void PrintTo(const EnvironmentCase& tried, std::ostream* out) { *out << tried.kind; }

class ClusterEnvironmentContract : public ::testing::TestWithParam<EnvironmentCase> {};

TEST_P(ClusterEnvironmentContract, IsDetectedByItsVariables) {
  const ScopedVariables scope(GetParam().variables);
  EXPECT_EQ(detect_environment()->name() == GetParam().kind, GetParam().detected);
  EXPECT_EQ(GetParam().make()->name(), GetParam().kind);
}

TEST_P(ClusterEnvironmentContract, ReadsWhoAndWhere) {
  const auto& tried = GetParam();
  const ScopedVariables scope(tried.variables);
  const auto environment = tried.make();
  if (!tried.told_from_outside) {
    environment->set_world_size(tried.world_size);
    environment->set_global_rank(tried.global_rank);
  }
  EXPECT_EQ(environment->creates_processes_externally(), tried.external);
  EXPECT_EQ(environment->main_address(), tried.address);
  EXPECT_EQ(environment->main_port(), tried.port);
  EXPECT_EQ(environment->world_size(), tried.world_size);
  EXPECT_EQ(environment->global_rank(), tried.global_rank);
  EXPECT_EQ(environment->local_rank(), tried.local_rank);
  EXPECT_EQ(environment->node_rank(), tried.node_rank);
  EXPECT_EQ(environment->local_world_size(), tried.local_world_size);
}

TEST_P(ClusterEnvironmentContract, SettersAreHeededOnlyWhereNobodyElseTells) {
  const auto& tried = GetParam();
  const ScopedVariables scope(tried.variables);
  const auto environment = tried.make();
  environment->set_world_size(tried.world_size + 7);
  environment->set_global_rank(tried.global_rank + 3);
  const int ignored = tried.told_from_outside ? 1 : 0;
  EXPECT_EQ(environment->world_size(), tried.world_size + 7 * (1 - ignored));
  EXPECT_EQ(environment->global_rank(), tried.global_rank + 3 * (1 - ignored));
}

TEST_P(ClusterEnvironmentContract, PortIsValidAndTheSameAtEveryCall) {
  const ScopedVariables scope(GetParam().variables);
  const auto environment = GetParam().make();
  const int port = environment->main_port();
  EXPECT_GE(port, 1);
  EXPECT_LE(port, 65535);
  EXPECT_EQ(environment->main_port(), port);
}

TEST_P(ClusterEnvironmentContract, AcceptsMatchingSettings) {
  const ScopedVariables scope(GetParam().variables);
  EXPECT_NO_THROW(GetParam().make()->validate_settings(GetParam().num_devices, GetParam().num_nodes));
}

TEST_P(ClusterEnvironmentContract, RefusesSettingsOfAnotherSizeOfWorld) {
  if (!GetParam().told_from_outside) return;
  const ScopedVariables scope(GetParam().variables);
  const int devices = GetParam().num_devices + 1;
  try {
    GetParam().make()->validate_settings(devices, GetParam().num_nodes);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("devices=" + std::to_string(devices)));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("expected devices"));
  }
}

TEST_P(ClusterEnvironmentContract, RefusesMalformedIntegersByNameAndValue) {
  for (const auto& name : GetParam().integers) {
    for (const std::string value : {"", "one", "-1", "1.5", " 1", "1 ", "0x1", "99999999999"}) {
      auto variables = GetParam().variables;
      variables[name] = value;
      const ScopedVariables scope(variables);
      try {
        GetParam().make();
        ADD_FAILURE() << name << "=\"" << value << "\" was accepted";
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr(name));
        EXPECT_THAT(error.what(), ::testing::HasSubstr("\"" + value + "\""));
        EXPECT_THAT(error.what(), ::testing::HasSubstr("set by"));
      }
    }
  }
}

// A variable that an earlier job left in the shell is the usual reason.
TEST_P(ClusterEnvironmentContract, NamesWhatHasChosenItWhereAVariableIsMissing) {
  const auto& tried = GetParam();
  if (tried.chosen_by.empty()) return;
  int num_refused = 0;
  for (const auto& [name, value] : tried.variables) {
    auto variables = tried.variables;
    variables.erase(name);
    const ScopedVariables scope(variables);
    try {
      const auto environment = detect_environment();
      environment->validate_settings(tried.num_devices, tried.num_nodes);
    } catch (const ConfigError& error) {
      ++num_refused;
      EXPECT_THAT(error.what(), ::testing::HasSubstr("unset " + tried.chosen_by)) << "without " << name;
    }
  }
  EXPECT_GT(num_refused, 0);
}

TEST_P(ClusterEnvironmentContract, TeardownMayBeCalledTwice) {
  const ScopedVariables scope(GetParam().variables);
  const auto environment = GetParam().make();
  EXPECT_NO_THROW(environment->teardown());
  EXPECT_NO_THROW(environment->teardown());
}

}  // namespace lockstep::testing
