// What is said of launchers and of variables.
#include <gmock/gmock.h>

#include <string>

#include <lockstep/base/env.h>

#include "doctor/cluster.h"
#include "doctor/support.h"

namespace lockstep::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(DoctorCluster, WhoStartsRanksIsTold) {
  ClusterFacts facts{.environment = "lightning", .programs = {{"srun", "/usr/bin/srun"}}};
  EXPECT_TRUE(is_all_fine(judge(facts)));
  EXPECT_THAT(fine(judge(facts)), HasSubstr("in PATH: srun (/usr/bin/srun)"));
  facts = {.environment = "slurm", .starts_ranks = true, .world_size = 8, .main_address = "node-1"};
  EXPECT_THAT(notes(judge(facts)), HasSubstr("slurm has started this process as one of 8 ranks"));
  EXPECT_THAT(notes(judge(facts)), HasSubstr("Rank 0 is at node-1"));
  EXPECT_THAT(errors(judge(ClusterFacts{.failure = "RANK is \"x\""})), HasSubstr("malformed: RANK is \"x\""));
}

TEST(DoctorVariables, OnlyHarmlessValuesAreShown) {
  env::set("OMP_NUM_THREADS", "3");
  env::set("LOCKSTEP_STORE_TOKEN", "a secret");
  env::set("SLURM_JWT", "another secret");
  const auto facts = variable_facts();
  for (const auto* name : {"OMP_NUM_THREADS", "LOCKSTEP_STORE_TOKEN", "SLURM_JWT"}) env::unset(name);
  const auto text = fine(judge(facts));
  EXPECT_THAT(text, HasSubstr("OMP_NUM_THREADS=3"));
  EXPECT_THAT(text, HasSubstr("LOCKSTEP_STORE_TOKEN"));
  EXPECT_THAT(text, HasSubstr("SLURM_JWT"));
  EXPECT_THAT(text, Not(HasSubstr("secret")));
  EXPECT_TRUE(is_all_fine(judge(VariableFacts{})));
}

}  // namespace
}  // namespace lockstep::doctor
