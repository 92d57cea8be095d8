// What is looked for, and what is said of memory that is short. Programs with these problems:
// tests/programs/diagnoses_test.py.
#include <gmock/gmock.h>

#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>

#include "base/diagnoses.h"
#include "base/format.h"
#include "base/memory_failure.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep::detail {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

TEST(Diagnoses, AreListed) {
  EXPECT_EQ(parse_diagnoses("all"), Diagnoses{});
  EXPECT_EQ(parse_diagnoses("none"), (Diagnoses{.memory = false, .data = false, .waits = std::nullopt}));
  EXPECT_EQ(parse_diagnoses("memory, waits"), (Diagnoses{.memory = true, .data = false, .waits = 30s}));
  EXPECT_EQ(parse_diagnoses("data,waits=1.5"), (Diagnoses{.memory = false, .data = true, .waits = 1500ms}));
  for (const char* text :
       {"", "weights", "memory,", "waits=", "waits=0", "waits=-1", "waits=soon", "waits=1s"})
    test::expect_error<ConfigError>([&] { parse_diagnoses(text); }, {"LOCKSTEP_DIAGNOSES", "waits=SECONDS"});
}

TEST(MemoryFailure, IsToldFromOtherErrors) {
  EXPECT_TRUE(is_memory_failure(std::bad_alloc()));
  EXPECT_TRUE(
      is_memory_failure(std::runtime_error("[enforce fail at alloc_cpu.cpp:124] err == 0. "
                                           "DefaultCPUAllocator: can't allocate memory: you tried to "
                                           "allocate 4096 bytes. Error code 12 (Cannot allocate memory)")));
  EXPECT_TRUE(
      is_memory_failure(std::runtime_error("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0")));
  EXPECT_FALSE(is_memory_failure(std::runtime_error("the memory of this rank is a colander")));
}

TEST(MemoryFailure, KnowsWhatWasAskedFor) {
  EXPECT_EQ(asked_bytes("you tried to allocate 4096 bytes. Error code 12"), 4096);
  EXPECT_EQ(asked_bytes("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0"), std::int64_t{3} << 29);
  EXPECT_EQ(asked_bytes("not enough memory for a tensor of 16 bytes"), 16);
  for (const char* text : {"", "you tried to allocate ", "you tried to allocate -5 bytes", "std::bad_alloc"})
    EXPECT_FALSE(asked_bytes(text)) << text;
}

TEST(MemoryFailure, IsReportedWithWhatIsKnown) {
  RankStatus status;
  EXPECT_THAT(memory_report(status, 3 << 20), HasSubstr("; peak so far 3.00 MiB"));
  EXPECT_EQ(memory_report(status, 3 << 20).find("parameters"), std::string::npos);
  status.memory.before_training = 100 << 20;
  status.memory.parameters = 40 << 20;
  status.memory.gradients = 30 << 20;
  status.memory.optimizer = 20 << 20;
  std::string("fewer samples").copy(status.memory.advice, sizeof(status.memory.advice));
  EXPECT_THAT(
      memory_report(status, 250 << 20),
      HasSubstr(": parameters 40.0 MiB, gradients 30.0 MiB, optimizer 20.0 MiB, activations and buffers "
                "100 MiB, all else before training 60.0 MiB; what makes room, in this order: fewer samples"));
}

TEST(MemoryFailure, TheFirstLineIsKept) {
  const auto text =
      failure_text(std::runtime_error("DefaultCPUAllocator: can't allocate memory: you tried to "
                                      "allocate 2097152 bytes.\nframe #0: c10::alloc_cpu"));
  EXPECT_THAT(text, HasSubstr("it asked for 2.00 MiB; peak so far "));
  EXPECT_THAT(text, HasSubstr("use a smaller batch"));  // nothing better is known before training
  EXPECT_EQ(text.find("frame"), std::string::npos);
}

class MemoryKills : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((folder_ / file).parent_path());
    folder_.file(file, text);
  }
  std::int64_t kills() const { return memory_kills(folder_ / "proc", folder_ / "cgroup"); }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(MemoryKills, AreCountedByACgroupOfEitherVersion) {
  EXPECT_EQ(kills(), 0);
  write("proc/vmstat", "nr_free_pages 5\noom_kill 7\n");
  EXPECT_EQ(kills(), 7);  // of the machine
  write("proc/self/cgroup", "4:memory:/jobs/1\n0::/user/2\n");
  EXPECT_EQ(kills(), 7);
  write("cgroup/user/2/memory.events", "low 0\noom 3\noom_kill 2\n");
  EXPECT_EQ(kills(), 2);
  write("cgroup/memory/jobs/1/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
  EXPECT_EQ(kills(), 4);
}

TEST(RankStatusTest, TellsWhatARankDidLast) {
  RankStatus status;
  EXPECT_EQ(whereabouts(status), "before its first collective");
  status.activity = RankActivity::kData;
  EXPECT_EQ(whereabouts(status), "before its first collective, in loading data of step 0");
  status.sequence = 5;
  std::string("all_reduce").copy(status.collective, 31);
  status.activity = RankActivity::kBackward;
  status.optimizer_step = 12;
  EXPECT_EQ(whereabouts(status), "after all_reduce seq 5, in backward of step 12");
  status.in_collective = 1;
  EXPECT_EQ(whereabouts(status), "in all_reduce seq 5");
}

}  // namespace
}  // namespace lockstep::detail
