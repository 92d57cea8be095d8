#include "testing/rank_job.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <map>

#include <ATen/Parallel.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/comm/init.h>
#include <lockstep/launch/join.h>

#include "base/memory_failure.h"

namespace lockstep::testing {
namespace {

void put(Packet& packet, const RankResult& rank) {
  packet.put(rank.result).put(static_cast<std::int64_t>(rank.outcome)).put(rank.error);
  packet.put(rank.exit_code).put(rank.signal).put(rank.was_stuck).put(rank.whereabouts);
}

RankResult take_rank(Packet& packet) {
  RankResult rank;
  rank.result = packet.take_text();
  rank.outcome = static_cast<RankOutcome>(packet.take_number());
  rank.error = packet.take_text();
  rank.exit_code = static_cast<int>(packet.take_number());
  rank.signal = static_cast<int>(packet.take_number());
  rank.was_stuck = packet.take_number() != 0;
  rank.whereabouts = packet.take_text();
  return rank;
}

void put(Packet& packet, const ForkRanksOptions& options) {
  packet.put(options.deadline.count()).put(options.comm_timeout.count());
  packet.put(static_cast<std::int64_t>(options.reduction));
  packet.put(static_cast<std::int64_t>(options.fault.kind)).put(options.fault.rank).put(options.fault.step);
  packet.put(static_cast<std::int64_t>(options.fault_place));
}

ForkRanksOptions take_options(Packet& packet) {
  ForkRanksOptions options;
  options.deadline = std::chrono::milliseconds(packet.take_number());
  options.comm_timeout = std::chrono::milliseconds(packet.take_number());
  options.reduction = static_cast<Reduction>(packet.take_number());
  options.fault.kind = static_cast<FaultKind>(packet.take_number());
  options.fault.rank = static_cast<int>(packet.take_number());
  options.fault.step = packet.take_number();
  options.fault_place = static_cast<FaultPlace>(packet.take_number());
  return options;
}

}  // namespace

Packet RankJob::packed() const {
  Packet packet;
  packet.put(ranks).put(name).put(argument);
  put(packet, options);
  return packet;
}

RankJob RankJob::unpacked(Packet packet) {
  RankJob job;
  job.ranks = static_cast<int>(packet.take_number());
  job.name = packet.take_text();
  job.argument = packet.take_text();
  job.options = take_options(packet);
  return job;
}

Packet JobReport::packed() const {
  Packet packet;
  packet.put(static_cast<std::int64_t>(failure)).put(what).put(got);
  packet.put(static_cast<std::int64_t>(ranks.size()));
  for (const auto& rank : ranks) put(packet, rank);
  return packet;
}

JobReport JobReport::unpacked(Packet packet) {
  JobReport report;
  report.failure = static_cast<JobFailure>(packet.take_number());
  report.what = packet.take_text();
  report.got = packet.take_text();
  for (auto left = packet.take_number(); left > 0; --left) report.ranks.push_back(take_rank(packet));
  return report;
}

Packet RankReport::packed() const {
  Packet packet;
  packet.put(result).put(error).put(static_cast<std::int64_t>(failed_assertions.size()));
  for (const auto& failed : failed_assertions) packet.put(failed);
  return packet;
}

RankReport RankReport::unpacked(Packet packet) {
  RankReport report{.result = packet.take_text(), .error = packet.take_text(), .failed_assertions = {}};
  for (auto left = packet.take_number(); left > 0; --left) {
    report.failed_assertions.push_back(packet.take_text());
  }
  return report;
}

namespace {

const ForkedRank* this_rank = nullptr;  // of this process, where it is a rank

void meet_fault(FaultPlace place, std::int64_t step) {
  if (this_rank == nullptr) return;
  const auto& options = this_rank->job.options;
  const auto& fault = options.fault;
  if (options.fault_place != place || fault.rank != this_rank->rank || fault.step != step) return;
  this_rank->slot.has_met_fault = true;
  inject(fault, this_rank->rank, step);
}

void meet_fault_in_collective(std::uint64_t sequence) {
  try {
    meet_fault(FaultPlace::kCollective, static_cast<std::int64_t>(sequence));
  } catch (...) {
    leave_collective();
    throw;
  }
}

void set_environment(const ForkedRank& self) {
  const auto rank = std::to_string(self.rank), ranks = std::to_string(self.job.ranks);
  for (const auto* name : {"RANK", "LOCAL_RANK"}) env::set(name, rank);
  for (const auto* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) env::set(name, ranks);
  for (const auto* name : {"NODE_RANK", "GROUP_RANK"}) env::set(name, "0");
  env::set("GROUP_WORLD_SIZE", "1");
  env::set("MASTER_ADDR", "127.0.0.1");
  env::set("MASTER_PORT", std::to_string(self.port));
  env::set("OMP_NUM_THREADS", "1");
  at::set_num_threads(1);
}

Communicator join(const ForkedRank& self) {
  CommOptions options{.main_port = self.port,
                      .rank = self.rank,
                      .world_size = self.job.ranks,
                      .timeout = self.job.options.comm_timeout,
                      .reduction = self.job.options.reduction};
  if (self.rank == 0) options.listen_fd = self.listen_fd;
  auto comm = init_communicator(options);
  self.slot.has_joined = true;
  return comm;
}

// An exception destroys the last copy of the communicator, by which the other ranks notice the failure.
std::string run_body(const ForkedRank& self) {
  meet_fault(FaultPlace::kCollective, 0);
  const auto comm = join(self);
  auto result = self.body(comm, self.job.argument);
  comm.close();
  return result;
}

RankReport run_part(const ForkedRank& self) noexcept {
  RankReport report;
  const auto part = [&] {
    try {
      report.result = run_body(self);
      set_outcome(RankOutcome::kDone);
    } catch (const std::exception& error) {
      report.error = detail::failure_text(error);
      note_failure(error);
    } catch (...) {
      report.error = "an exception that is no std::exception";
      set_outcome(RankOutcome::kFailed, report.error);
    }
  };
  self.catcher ? self.catcher(part, report.failed_assertions) : part();
  return report;
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(fd, bytes.data(), bytes.size());
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
    if (written < 0 && errno != EINTR) ::_exit(1);
  }
}

}  // namespace

void run_forked_rank(const ForkedRank& self) noexcept {
  this_rank = &self;
  use_rank_status(self.slot.status);
  on_enter_collective(&meet_fault_in_collective);
  set_environment(self);
  if (self.rank != 0) ::close(self.listen_fd);
  const auto report = run_part(self);
  write_all(self.report_fd, report.packed().bytes());
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  ::_exit(self.slot.status.outcome == RankOutcome::kDone ? 0 : 1);
}

void fault_point(std::int64_t step) { meet_fault(FaultPlace::kPoint, step); }

namespace {

// A multimap, since duplicate names are reported later, where an error can be thrown.
std::multimap<std::string, RankBody>& bodies() {
  static std::multimap<std::string, RankBody> all;
  return all;
}

std::string known_names() {
  std::string names;
  for (const auto& [name, body] : bodies()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace

RegisteredRankBody::RegisteredRankBody(const char* name, RankBody body) { bodies().emplace(name, body); }

RankBody find_rank_body(const std::string& name) {
  const auto count = bodies().count(name);
  if (count == 1) return bodies().find(name)->second;
  throw ConfigError("testing", {.what = "fork_ranks: body \"" + name + "\" is " +
                                        (count == 0 ? "unknown" : "registered more than once"),
                                .expected = known_names(),
                                .hint = "define it once by LOCKSTEP_RANK_BODY(" + name + ")"});
}

}  // namespace lockstep::testing
