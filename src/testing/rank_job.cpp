#include "testing/rank_job.h"

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

}  // namespace lockstep::testing
