// What is said of the libraries that a program finds, and of ranks that meet.
#include <gmock/gmock.h>

#include <string>

#include <lockstep/base/error.h>

#include "doctor/programs.h"
#include "doctor/support.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep::doctor {
namespace {

using ::testing::HasSubstr;

const BuildFacts kBuilt{.version = "0.1.0", .torch_version = "2.13.0", .torch_folder = "/opt/torch"};

LibraryFacts usual_libraries() {
  return {.lockstep_version = "0.1.0",
          .lockstep_library = "/usr/lib/liblockstep.so",
          .torch_version = "2.13",
          .torch_library = "/opt/torch/lib/libtorch_cpu.so",
          .cpu_capability = "AVX2",
          .accelerators = {{.name = "cpu", .count = 1}, {.name = "cuda", .absence = "no CUDA in LibTorch"}},
          .cuda_library = {.path = "/usr/lib/liblockstep_cuda.so"}};
}

TEST(DoctorLibraries, MustBeOfTheVersionsThatLockstepWasBuiltWith) {
  auto facts = usual_libraries();
  EXPECT_TRUE(is_all_fine(judge_libraries(facts, kBuilt)));
  EXPECT_THAT(fine(judge_libraries(facts, kBuilt)),
              HasSubstr("LibTorch 2.13 (/opt/torch/lib/libtorch_cpu.so)"));
  facts.torch_version = "2.14";
  EXPECT_THAT(errors(judge_libraries(facts, kBuilt)), HasSubstr("but lockstep was built with 2.13.0"));
  facts = usual_libraries();
  facts.lockstep_version = "0.2.0";
  EXPECT_THAT(errors(judge_libraries(facts, kBuilt)), HasSubstr("liblockstep.so is of lockstep 0.2.0"));
}

TEST(DoctorLibraries, OnesThatCannotBeLoadedAreAnErrorThatNamesThePlaces) {
  const LibraryFacts facts{.failure = "libtorch_cpu.so: cannot open shared object file"};
  EXPECT_THAT(errors(judge_libraries(facts, kBuilt)), HasSubstr("cannot open shared object file"));
  EXPECT_THAT(errors(judge_libraries(facts, kBuilt)), HasSubstr("LD_LIBRARY_PATH=FOLDER/lib"));
  EXPECT_THAT(errors(judge_libraries(facts, kBuilt)), HasSubstr("/opt/torch"));
  EXPECT_THAT(notes(judge_accelerators(facts)), HasSubstr("unknown"));
  const LibraryFacts absent{.has_program = false, .failure = "no such file"};
  EXPECT_THAT(errors(judge_libraries(absent, kBuilt)), HasSubstr("install lockstep as a whole"));
}

TEST(DoctorAccelerators, ADriverWithoutDevicesIsAWarning) {
  auto facts = usual_libraries();
  EXPECT_TRUE(is_all_fine(judge_accelerators(facts)));
  EXPECT_THAT(fine(judge_accelerators(facts)), HasSubstr("no cuda: no CUDA in LibTorch"));
  facts.has_nvidia_driver = true;
  EXPECT_THAT(warnings(judge_accelerators(facts)), HasSubstr("no CUDA in LibTorch"));
  facts.accelerators[1] = {.name = "cuda", .count = 8};
  const auto findings = judge_accelerators(facts);
  EXPECT_TRUE(is_all_fine(findings));
  EXPECT_EQ(findings.front().value, 8);
  EXPECT_THAT(fine(findings), HasSubstr("liblockstep_cuda.so is not there"));
}

TEST(DoctorAccelerators, TheLibraryForCudaMustFitTheLibTorch) {
  auto facts = usual_libraries();
  facts.cuda_library = {.path = "/usr/lib/liblockstep_cuda.so",
                        .is_there = true,
                        .torch = "2.13",
                        .cuda = "13",
                        .nccl = "2.29.7"};
  EXPECT_THAT(fine(judge_accelerators(facts)), HasSubstr("is for LibTorch 2.13, CUDA 13, NCCL 2.29.7"));
  facts.cuda_library.torch = "2.12";
  EXPECT_THAT(warnings(judge_accelerators(facts)), HasSubstr("another LibTorch than is loaded"));
  facts.cuda_library.torch = "";
  EXPECT_THAT(warnings(judge_accelerators(facts)), HasSubstr("does not say what it was built with"));
}

TEST(DoctorSelfTest, TimesAreFindingsWithTheirUnits) {
  const auto facts = read_self_test_facts(
      R"({"ranks": 2, "meet_s": 0.05, "shares_memory": true, "timings": [{"name": "all_reduce", "bytes": 4096,
          "carried_by": "shared memory", "rounds": 200, "median_us": 12.5}]})");
  const auto findings = judge(facts);
  EXPECT_EQ(errors(findings), "");
  EXPECT_THAT(fine(findings),
              HasSubstr("all_reduce of 4.00 KiB by shared memory: 12.50 us, the median of 200"));
  EXPECT_EQ(findings[2].value, 12.5);
  EXPECT_EQ(findings[2].unit, "microseconds");
}

TEST(DoctorSelfTest, FailuresAndSocketsAreTold) {
  EXPECT_THAT(errors(judge(SelfTestFacts{.failure = "rank 1 did not join", .seconds = 3})),
              HasSubstr("2 ranks of this machine could not be started, meet and add tensors, after 3.00 s: "
                        "rank 1 did not join"));
  EXPECT_THAT(notes(judge(SelfTestFacts{})), HasSubstr("do not share memory"));
}

TEST(DoctorPrograms, TextThatCannotBeReadIsAnError) {
  test::expect_error<Error>([] { read_self_test_facts("{"); },
                            {"lockstep-self-test printed what cannot be read"});
  test::expect_error<Error>([] { read_library_facts("{}"); }, {"cuda_library"});
}

// Programs in the places of `lockstep` and of lockstep-self-test.
class DoctorWithPrograms : public ::testing::Test {
 protected:
  std::filesystem::path program(const std::string& name, const std::string& script) {
    const auto file = folder_.file(name, "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file;
  }
  SelfTestFacts facts_of(const std::string& script,
                         std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    return self_test_facts(
        {.command = program("command", script), .self_test = folder_ / "self-test", .timeout = timeout});
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(DoctorWithPrograms, RanksAreStartedByTheLauncherWithATimeoutOfTheirOwn) {
  const auto facts = facts_of("echo a line of another; echo \"$1 $2 $3 $4 $6\" >&2; exit 3");
  EXPECT_THAT(facts.failure, HasSubstr("ended with 3"));
  EXPECT_THAT(facts.failure, HasSubstr("run --nproc-per-node 2 --no-python ranks"));
  EXPECT_EQ(
      facts_of("echo noise; echo '{\"ranks\": 2, \"meet_s\": 1, \"shares_memory\": false, \"timings\": []}'")
          .failure,
      "");
  EXPECT_THAT(facts_of("true").failure, HasSubstr("no word"));
}

TEST_F(DoctorWithPrograms, OneThatHangsIsKilledAtTheDeadline) {
  const auto facts = facts_of("echo it began; exec sleep 1000", std::chrono::milliseconds(1000));
  EXPECT_THAT(facts.failure, HasSubstr("has not ended"));
  EXPECT_THAT(facts.failure, HasSubstr("1000 ms"));
  EXPECT_THAT(facts.failure, HasSubstr("it began"));
  EXPECT_GE(facts.seconds, 1);
}

}  // namespace
}  // namespace lockstep::doctor
