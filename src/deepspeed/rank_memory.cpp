// Shards are the masters, so that float32 has them once; gradients lie on shards, in their type.
#include <lockstep/deepspeed/rank_memory.h>

#include <fmt/format.h>

#include "deepspeed/estimated_bytes.h"

namespace lockstep {
namespace {

using deepspeed::kGiB;

constexpr double kShardBytes = 4;
constexpr double kGradientBytes = 4;
constexpr double kAdamBytes = 8;
constexpr double kFp32 = 4, kMixed = 2;  // bytes of what is gathered

// Two layers gathered, the gradients of one, and those of two on their way.
constexpr double kLayersInUse = 5;

struct Choice {
  bool offload_optimizer, offload_param;
};

double ranks_that_share(const MemoryQuestion& q) {
  return q.stage == 0 ? 1 : static_cast<double>(q.gpus_per_node) * q.nodes;
}

// What is gathered in 16 bits is kept of the shard in 16 bits, too.
double shard_bytes(const MemoryQuestion& q, const Choice& choice, double element_bytes) {
  const auto adam = choice.offload_optimizer ? 0 : kAdamBytes;
  const auto copy = element_bytes == kMixed && ranks_that_share(q) > 1 ? kMixed : 0;
  return choice.offload_param ? adam : kShardBytes + copy + kGradientBytes + adam;
}

// At stages 1 and 2 what a rank gives, the shard or its copy, lies in what is gathered.
double gathered(const MemoryQuestion& q, double element_bytes) {
  const auto ranks = ranks_that_share(q);
  const bool is_the_shard = ranks == 1 && element_bytes == kFp32;
  if (is_the_shard) return 0;
  if (q.stage == 3) return kLayersInUse * static_cast<double>(q.largest_layer) * element_bytes;
  const auto others = ranks == 1 ? 1 : 1 - 1 / ranks;
  return static_cast<double>(q.params) * element_bytes * others;
}

std::int64_t bytes_of(const MemoryQuestion& q, const Choice& choice, double element_bytes) {
  const double kept =
      static_cast<double>(q.params) * shard_bytes(q, choice, element_bytes) / ranks_that_share(q);
  return deepspeed::bytes(kept + gathered(q, element_bytes));
}

std::vector<Choice> choices_of(int stage) {
  if (stage == 0) return {{false, false}};
  if (stage < 3) return {{false, false}, {true, false}};
  return {{false, false}, {true, false}, {true, true}};
}

const char* place(bool is_on_disk) { return is_on_disk ? "nvme" : "none"; }

}  // namespace

std::vector<RankMemory> estimate_rank_memory(const MemoryQuestion& question) {
  std::vector<RankMemory> rows;
  for (const auto& choice : choices_of(question.stage)) {
    rows.push_back({.offload_optimizer = choice.offload_optimizer,
                    .offload_param = choice.offload_param,
                    .fp32_bytes = bytes_of(question, choice, kFp32),
                    .mixed_bytes = bytes_of(question, choice, kMixed)});
  }
  return rows;
}

std::string rank_memory_table(const MemoryQuestion& question, const std::vector<RankMemory>& rows) {
  std::string text = "lockstep on CPUs, each rank:\n  float32  |  16 bits  |   Options\n";
  for (const auto& row : rows) {
    text += fmt::format(" {:7.2f}GB | {:7.2f}GB | ", static_cast<double>(row.fp32_bytes) / kGiB,
                        static_cast<double>(row.mixed_bytes) / kGiB);
    if (question.stage == 3) text += fmt::format("offload_param={}, ", place(row.offload_param));
    text += fmt::format("offload_optimizer={}\n", place(row.offload_optimizer));
  }
  return text;
}

}  // namespace lockstep
