// comm_case NAME --world N --backend B --seed S --out FILE.json: one collective among real processes, and
// what becomes of it when a rank does something else. NAME is reduce, mismatch-op, mismatch-shape,
// mismatch-dtype, mismatch-group, absent, die, stop, die-at-phase or stop-at-phase. The seed chooses
// collective, shape, values, the rank that misbehaves and when. The file says for each rank which error it
// met, which ranks that names, how many milliseconds after the misdeed, and the hash of its results.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include <lockstep/base/command_line.h>
#include <lockstep/base/error.h>
#include <lockstep/base/option_visitor.h>

#include "comm/comm_case_ranks.h"
#include "rendezvous/mesh_sockets.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;

struct CaseOptions {
  int world = 2;
  std::string backend = "sockets";
  std::int64_t seed = 0;
  std::string out = {};
};

void describe(OptionVisitor& visitor, CaseOptions& options) {
  visitor.field("world", options.world, "ranks", at_least(1));
  visitor.field("backend", options.backend,
                "sockets or gloo; with -apart without shared memory, with -fast, with -unchecked; or single");
  visitor.field("seed", options.seed, "of the collective, its values and the misdeed");
  visitor.field("out", options.out, "file to write");
}

CaseReport* share_reports(int world) {
  void* const memory = ::mmap(nullptr, sizeof(CaseReport) * static_cast<std::size_t>(world),
                              PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap");
  return new (memory) CaseReport[static_cast<std::size_t>(world)];
}

std::vector<pid_t> start_ranks(const CaseInput& input, std::span<CaseReport> reports) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < input.world; ++rank) {
    const pid_t pid = ::fork();
    if (pid != 0) {
      pids.push_back(pid);
      continue;
    }
    run_case(input, rank, reports);
    std::fflush(stdout);
    ::_exit(0);
  }
  return pids;
}

// A stopped rank stays so until the others are done.
void await_ranks(std::span<const pid_t> pids, std::span<CaseReport> reports) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (bool all_done = false; !all_done && std::chrono::steady_clock::now() < deadline;) {
    all_done = std::ranges::all_of(reports, [](const CaseReport& report) { return report.is_done.load(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::size_t rank = 0; rank < pids.size(); ++rank) {
    if (!reports[rank].is_done) reports[rank].set_error("stuck");
    ::kill(pids[rank], SIGKILL);
    ::waitpid(pids[rank], nullptr, 0);
  }
}

json to_json(const CaseInput& input, std::span<const CaseReport> reports) {
  json ranks = json::array();
  for (int rank = 0; rank < input.world; ++rank) {
    const auto& report = reports[static_cast<std::size_t>(rank)];
    ranks.push_back({{"rank", rank},
                     {"error", report.error},
                     {"named", std::vector<int>(report.named, report.named + report.named_count)},
                     {"ms", report.ms},
                     {"result_hash", report.result_hash},
                     {"text", report.text}});
  }
  return {{"case", input.name},
          {"world", input.world},
          {"seed", input.seed},
          {"victim", victim_of(input)},
          {"collective", collective_text(input)},
          {"ranks", ranks}};
}

int run(int argc, char** argv) {
  CaseOptions options;
  OptionTree tree;
  tree.add("", options);
  const auto command_line =
      parse_command_line(argc, argv, tree, {.program = "comm_case", .verbs = case_names()});
  if (command_line.text_to_print) return std::fputs(command_line.text_to_print->c_str(), stdout), 0;
  tree.apply(command_line.assignments);
  const rendezvous::MeshListener listener("127.0.0.1");
  const CaseInput input{.name = command_line.verb.empty() ? case_names().front() : command_line.verb,
                        .world = options.world,
                        .backend = options.backend,
                        .seed = static_cast<std::uint64_t>(options.seed),
                        .port = listener.endpoint().port,
                        .listen_fd = ::dup(listener.fd())};
  const std::span reports(share_reports(options.world), static_cast<std::size_t>(options.world));
  await_ranks(start_ranks(input, reports), reports);
  const auto result = to_json(input, reports).dump(1) + "\n";
  if (options.out.empty()) return std::fputs(result.c_str(), stdout), 0;
  std::ofstream(options.out) << result;
  return 0;
}

}  // namespace
}  // namespace lockstep::testing

int main(int argc, char** argv) {
  try {
    return lockstep::testing::run(argc, argv);
  } catch (const lockstep::ConfigError& error) {
    std::fprintf(stderr, "comm_case: %s\n", error.what());
    return 2;
  }
}
