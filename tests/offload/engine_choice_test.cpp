// Which engine there is where a container forbids io_uring, and what happens when its calls begin to fail.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

#include <lockstep/base/error.h>

#include "support/expect_error.h"
#include "support/forked.h"
#include "swap_cases.h"

namespace lockstep::offload {
namespace {

using test::expect_error;
using test::start_forked;
using test::TemporaryFolder;
using test::wait_for;

// For all threads of this process, and for ever.
void forbid(long call, unsigned error_number) {
  const std::array<sock_filter, 4> program{
      sock_filter(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))),
      sock_filter(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1)),
      sock_filter(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error_number)),
      sock_filter(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW))};
  const sock_fprog filter{.len = program.size(), .filter = const_cast<sock_filter*>(program.data())};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0)
    throw std::runtime_error("no seccomp here");
}

void expect_true(bool fact, const char* what) {
  if (!fact) throw std::runtime_error(what);
}

template <class Body>
void run_forked(Body body) {
  EXPECT_EQ(wait_for(start_forked([&] {
              body();
              expect_true(!::testing::Test::HasFailure(), "see above");
            })),
            0);
}

class ForbiddenUring : public ::testing::TestWithParam<unsigned> {
 protected:
  const TemporaryFolder directory;
};
INSTANTIATE_TEST_SUITE_P(Errors, ForbiddenUring, ::testing::Values(EPERM, ENOSYS));

TEST_P(ForbiddenUring, ThreadsReadAndWrite) {
  run_forked([&] {
    forbid(SYS_io_uring_setup, GetParam());
    const SwapFolder folder({.directory = directory.path()});
    SwapFile file(folder, "a", 100'000, {.block_size = 8192});
    EXPECT_EQ(file.engine(), "threads");
    AlignedBuffer out(100'000), in(100'000);
    fill(out.bytes(), 1);
    file.write(0, out.bytes()).wait();
    file.read(0, in.bytes()).wait();
    EXPECT_EQ(differing(in.bytes(), 1), 0u);
  });
}

TEST_P(ForbiddenUring, IsAnErrorWhereNothingElseWillDo) {
  run_forked([&] {
    forbid(SYS_io_uring_setup, GetParam());
    const SwapFolder folder({.directory = directory.path()});
    expect_error<ConfigError>([&] { SwapFile(folder, "a", 8192, {.engine = EngineKind::kIoUring}); },
                              {"io_uring", std::strerror(static_cast<int>(GetParam())), "threads"});
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  });
}

class FailingUring : public ForbiddenUring {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FailingUring);
INSTANTIATE_TEST_SUITE_P(Errors, FailingUring,
                         ::testing::ValuesIn(uring_is_allowed() ? std::vector<unsigned>{EPERM, ENOSYS}
                                                                : std::vector<unsigned>{}));

TEST_P(FailingUring, IsSaidAtTheNextWait) {
  run_forked([&] {
    const SwapFolder folder({.directory = directory.path()});
    SwapFile file(folder, "a", 1 << 20,
                  {.block_size = 8192, .queue_depth = 2, .engine = EngineKind::kIoUring});
    AlignedBuffer buffer(1 << 20);
    file.read(0, buffer.bytes()).wait();
    forbid(SYS_io_uring_enter, GetParam());
    const auto reason = std::strerror(static_cast<int>(GetParam()));
    expect_error<IoError>([&] { file.write(0, buffer.bytes()).wait(); },
                          {"cannot write", "at offset", reason});
    expect_error<IoError>([&] { file.read(0, buffer.bytes()).wait(); }, {"cannot read", "at offset", reason});
  });
}

TEST(EngineChoice, IsIoUringWhereItIsAllowed) {
  const TemporaryFolder directory;
  const SwapFolder folder({.directory = directory.path()});
  EXPECT_EQ(SwapFile(folder, "a", 8192).engine(), uring_is_allowed() ? "io_uring" : "threads");
}

}  // namespace
}  // namespace lockstep::offload
