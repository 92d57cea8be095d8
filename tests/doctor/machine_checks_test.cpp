// What is said of processors, memory and limits.
#include <gmock/gmock.h>

#include <string>

#include "base/cgroup.h"
#include "doctor/machine.h"
#include "doctor/support.h"
#include "rendezvous/descriptors.h"
#include "support/temporary_folder.h"

namespace lockstep::doctor {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

ProcessorFacts two_cores() {
  return {
      .model = "Example 9000", .online = 4, .usable = 2, .cores = {{.processors = {0}}, {.processors = {1}}}};
}

TEST(DoctorProcessors, AreCountedByCoresSocketsAndNodes) {
  const auto findings = judge(two_cores());
  EXPECT_TRUE(is_all_fine(findings));
  EXPECT_THAT(fine(findings),
              HasSubstr("Example 9000: 2 processors usable of 4, 2 cores in 1 socket and 1 NUMA node"));
  EXPECT_EQ(findings.front().value, 2);
  auto facts = two_cores();
  facts.cores[1].node = facts.cores[1].socket = 1;
  EXPECT_THAT(fine(judge(facts)), HasSubstr("2 sockets and 2 NUMA nodes"));
  EXPECT_THAT(notes(judge(facts)), HasSubstr("--numa-binding"));
}

TEST(DoctorProcessors, AQuotaBelowTheirNumberIsAWarningUnlessThreadsAreSet) {
  auto facts = two_cores();
  facts.quota = 1.5;
  EXPECT_TRUE(is_all_fine(judge(facts)));  // rounded up to those that are usable
  facts.quota = 0.5;
  EXPECT_THAT(warnings(judge(facts)), HasSubstr("the time of 0.50 processors"));
  EXPECT_THAT(warnings(judge(facts)), HasSubstr("OMP_NUM_THREADS"));
  facts.threads = "1";
  EXPECT_EQ(warnings(judge(facts)), "");
  EXPECT_THAT(notes(judge(facts)), HasSubstr("OMP_NUM_THREADS is 1"));
}

TEST(DoctorMemory, LimitsAndKillsAreTold) {
  const MemoryFacts facts{.total = 16 * kGiB, .available = 8 * kGiB};
  EXPECT_TRUE(is_all_fine(judge(facts)));
  EXPECT_EQ(judge(facts).front().value, 8.0 * kGiB);
  auto limited = facts;
  limited.cgroup = 4 * kGiB;
  limited.data = 3 * kGiB;
  limited.kills = 2;
  EXPECT_THAT(notes(judge(limited)), HasSubstr("may have 4.00 GiB in all"));
  EXPECT_THAT(notes(judge(limited)), HasSubstr("ulimit -d allows each process 3.00 GiB"));
  EXPECT_THAT(notes(judge(limited)), HasSubstr("want of memory: 2 "));
  EXPECT_EQ(warnings(judge(limited)), "");
  limited.cgroup = kGiB / 2;
  EXPECT_THAT(warnings(judge(limited)), HasSubstr("Less than 1 GiB"));
}

class DoctorCgroup : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((folder_ / file).parent_path());
    folder_.file(file, text);
  }
  detail::CgroupLimits limits() const { return detail::cgroup_limits(folder_ / "proc", folder_ / "cgroup"); }
  MemoryFacts memory() const { return memory_facts(folder_ / "proc", folder_ / "cgroup"); }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(DoctorCgroup, OfVersion2TheLeastLimitOfTheGroupAndThoseAroundItCounts) {
  EXPECT_FALSE(limits().memory_bytes);
  write("proc/self/cgroup", "0::/jobs/7\n");
  write("cgroup/jobs/7/memory.max", "max\n");
  write("cgroup/jobs/7/cpu.max", "max 100000\n");
  EXPECT_FALSE(limits().memory_bytes);
  EXPECT_FALSE(limits().processors);
  write("cgroup/jobs/memory.max", "2147483648\n");
  write("cgroup/jobs/7/cpu.max", "50000 100000\n");
  write("cgroup/pids.max", "300\n");
  EXPECT_EQ(limits().memory_bytes, 2 * kGiB);
  EXPECT_EQ(limits().processors, 0.5);
  EXPECT_EQ(limits().tasks, 300);
}

TEST_F(DoctorCgroup, OfVersion1EachControllerHasAGroup) {
  write("proc/self/cgroup", "5:memory:/host/path\n4:cpu,cpuacct:/a\n3:pids:/a\n");
  write("cgroup/memory/memory.limit_in_bytes", "1073741824\n");  // a container does not see /host/path
  write("cgroup/cpu/a/cpu.cfs_quota_us", "150000\n");
  write("cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  write("cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().memory_bytes, kGiB);
  EXPECT_EQ(limits().processors, 1.5);
  EXPECT_FALSE(limits().tasks);
  write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(limits().memory_bytes);
}

TEST_F(DoctorCgroup, MemoryIsReadFromTheKernelsTables) {
  write("proc/meminfo", "MemTotal:        1000 kB\nMemFree: 1 kB\nMemAvailable:     500 kB\n");
  write("proc/self/cgroup", "0::/\n");
  write("cgroup/memory.max", "409600\n");
  const auto facts = memory();
  EXPECT_EQ(facts.total, 1'024'000);
  EXPECT_EQ(facts.available, 512'000);
  EXPECT_EQ(facts.cgroup, 409'600);
}

LimitFacts limits_of_files(std::int64_t most) { return {.open_files = 16, .most_open_files = most}; }

TEST(DoctorLimits, OpenFilesAreJudgedByTheHardLimit) {
  EXPECT_TRUE(is_all_fine(judge(limits_of_files(1'048'576))));
  EXPECT_TRUE(is_all_fine(judge(LimitFacts{})));
  EXPECT_THAT(warnings(judge(limits_of_files(100))), HasSubstr("groups of 27 ranks"));
  const auto of_two = rendezvous::descriptors_of_group(0, 2);
  EXPECT_EQ(errors(judge(limits_of_files(of_two))), "");
  const auto broken = judge(limits_of_files(of_two - 1));
  EXPECT_THAT(errors(broken), HasSubstr("too few for two ranks"));
  EXPECT_THAT(errors(broken), HasSubstr("nofile"));
  EXPECT_EQ(broken.front().value, of_two - 1);
}

TEST(DoctorLimits, ManyProcessorsNeedManyFiles) {
  auto facts = limits_of_files(1'024);
  EXPECT_TRUE(is_all_fine(judge(facts)));
  facts.processors = 512;
  EXPECT_THAT(warnings(judge(facts)), HasSubstr("groups of 335 ranks"));
}

TEST(DoctorLimits, LockedMemoryMattersToInfiniBandAlone) {
  LimitFacts facts{.locked_bytes = 65'536};
  EXPECT_THAT(fine(judge(facts)), HasSubstr("64.0 KiB; lockstep locks none"));
  facts.has_infiniband = true;
  EXPECT_THAT(warnings(judge(facts)), HasSubstr("ulimit -l unlimited"));
}

TEST(DoctorLimits, TheLeastLimitOfProcessesCounts) {
  EXPECT_THAT(warnings(judge(LimitFacts{.processes = 5'000, .tasks = 100})),
              HasSubstr("processes and threads: 100"));
  EXPECT_EQ(warnings(judge(LimitFacts{.processes = 5'000, .tasks = 1'000})), "");
}

TEST(DoctorSharedMemory, IsOptionalAndItsVariableChecked) {
  const SharedMemoryFacts facts{.dev_shm_bytes = kGiB};
  EXPECT_TRUE(is_all_fine(judge(facts)));
  EXPECT_THAT(fine(judge(facts)), HasSubstr("/dev/shm has 1.00 GiB; lockstep does not use it"));
  EXPECT_THAT(fine(judge(SharedMemoryFacts{})), HasSubstr("/dev/shm is not there"));
  EXPECT_THAT(warnings(judge(SharedMemoryFacts{.failure = "memfd_create: Operation not permitted"})),
              HasSubstr("Operation not permitted): ranks of this machine talk by sockets"));
  EXPECT_THAT(notes(judge(SharedMemoryFacts{.variable = "0"})), HasSubstr("sockets alone"));
  EXPECT_THAT(errors(judge(SharedMemoryFacts{.variable = "yes"})),
              HasSubstr("is \"yes\", which ranks refuse"));
}

}  // namespace
}  // namespace lockstep::doctor
