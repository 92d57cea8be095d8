// DeepSpeed's formulas: 16 bits for parameters and gradients, 12 bytes of Adam's fp32 states for each
// parameter, and 4 more for gradients in fp32.
#include <lockstep/advice/memory_estimate.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "advice/strategy_table.h"
#include "base/format.h"

namespace lockstep {
namespace {

using detail::whole_bytes;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// The numbers of the formulas.
struct Numbers {
  double params, largest_layer, local, nodes, all;

  explicit Numbers(const MemoryQuestion& q)
      : params(static_cast<double>(q.params)),
        largest_layer(static_cast<double>(q.largest_layer)),
        local(q.gpus_per_node),
        nodes(q.nodes),
        all(local * nodes) {}
};

MemoryEstimate row(double cpu, double gpu) {
  return {.cpu_bytes = whole_bytes(cpu), .gpu_bytes = whole_bytes(gpu)};
}

std::vector<MemoryEstimate> stage0(const MemoryQuestion& q) {
  const Numbers n(q);
  return {row(n.params * 4 * n.local * q.additional_buffer_factor, 16 * n.params)};
}

std::vector<MemoryEstimate> stage1(const MemoryQuestion& q) {
  const Numbers n(q);
  auto offloaded = row(n.params * std::max(4 * n.all, 16.0) * q.additional_buffer_factor, 4 * n.params);
  offloaded.offload_optimizer = true;
  return {offloaded, row(n.params * 4 * n.local * q.additional_buffer_factor,
                         4 * n.params + std::trunc(12 * n.params / n.all))};
}

std::vector<MemoryEstimate> stage2(const MemoryQuestion& q) {
  const Numbers n(q);
  auto offloaded = row(n.params * std::max(4 * n.all, 16.0) * q.additional_buffer_factor, 2 * n.params);
  offloaded.offload_optimizer = true;
  return {offloaded, row(n.params * 4 * n.local * q.additional_buffer_factor,
                         2 * n.params + std::trunc(18 * n.params / n.all))};
}

double stage3_gpu(const Numbers& n, const MemoryEstimate& choice) {
  const auto layer = 4 * n.largest_layer;
  if (!choice.offload_optimizer) return layer + std::trunc(18 * n.params / n.all);
  return choice.offload_param ? layer : layer + std::trunc(2 * n.params / n.all);
}

double stage3_cpu(const Numbers& n, const MemoryEstimate& choice) {
  if (!choice.offload_optimizer) return (choice.zero_init ? n.largest_layer : n.params) * 4 * n.local;
  const auto kept = (choice.offload_param ? 18.0 : 16.0) * (1 / n.nodes);
  return n.params * (choice.zero_init ? kept : std::max(4 * n.local, kept));
}

std::vector<MemoryEstimate> stage3(const MemoryQuestion& q) {
  const Numbers n(q);
  std::vector<MemoryEstimate> rows;
  for (const auto& [optimizer, param] : {std::pair{true, true}, {true, false}, {false, false}}) {
    for (const bool zero_init : {true, false}) {
      MemoryEstimate choice{.offload_optimizer = optimizer, .offload_param = param, .zero_init = zero_init};
      choice.cpu_bytes = whole_bytes(stage3_cpu(n, choice) * q.additional_buffer_factor);
      choice.gpu_bytes = whole_bytes(stage3_gpu(n, choice));
      rows.push_back(choice);
    }
  }
  return rows;
}

std::string options_text(int stage, const MemoryEstimate& row) {
  const auto device = [](bool is_offloaded) { return is_offloaded ? "cpu " : "none"; };
  const auto optimizer = std::string("offload_optimizer=") + device(row.offload_optimizer);
  if (stage < 3) return optimizer;
  return std::string("offload_param=") + device(row.offload_param) + ", " + optimizer +
         ", zero_init=" + (row.zero_init ? "1" : "0");
}

}  // namespace

std::vector<MemoryEstimate> estimate_memory(const MemoryQuestion& question) {
  if (question.stage == 3) return stage3(question);
  if (question.stage == 2) return stage2(question);
  return question.stage == 1 ? stage1(question) : stage0(question);
}

std::string memory_table(const MemoryQuestion& q, const std::vector<MemoryEstimate>& rows) {
  auto text = fmt::format(
      "Estimated memory needed for params, optim states and gradients for a:\n"
      "HW: Setup with {} {}, {} {} per node.\nSW: Model with {}M total params",
      q.nodes, q.nodes > 1 ? "nodes" : "node", q.gpus_per_node, q.gpus_per_node > 1 ? "GPUs" : "GPU",
      q.params / 1'000'000);
  if (q.stage == 3) text += fmt::format(", {}M largest layer params", q.largest_layer / 1'000'000);
  text += ".\n  per CPU  |  per GPU |   Options\n";
  for (const auto& row : rows) {
    text += fmt::format(" {:7.2f}GB | {:6.2f}GB | {}\n", static_cast<double>(row.cpu_bytes) / kGiB,
                        static_cast<double>(row.gpu_bytes) / kGiB, options_text(q.stage, row));
  }
  return text;
}

Expected<std::int64_t> parse_parameter_count(std::string_view text) {
  constexpr std::string_view kUnits = "KMBT";
  constexpr const char* kAccepted = "a whole number of parameters > 0, such as 124M, 1.5B or 1500000000";
  double factor = 1;
  auto digits = text;
  const char last = digits.empty() ? '\0' : static_cast<char>(digits.back() & ~0x20);
  if (const auto unit = kUnits.find(last); unit != std::string_view::npos) {
    factor = std::pow(1000.0, static_cast<double>(unit + 1));
    digits.remove_suffix(1);
  }
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const auto count = std::round(number * factor);
  const bool is_whole = std::abs(number * factor - count) < 1e-3;
  if (error != std::errc() || end != digits.data() + digits.size() || !is_whole || !(count >= 1.0) ||
      count >= kBeyondInt64)
    return Unexpected{kAccepted};
  return static_cast<std::int64_t>(count);
}

namespace {

constexpr detail::ElementBytes kFp32{};
constexpr detail::ElementBytes kMixed{.computed = 2};

struct Offloads {
  bool offload_optimizer, offload_param;
};

// Stage 3 with stage3_max_live_parameters 0 gathers what FULL_SHARD does.
detail::StrategyForm form_of(int stage, const Offloads& offloads) {
  constexpr const char* kNames[] = {"ddp", "deepspeed_stage_1", "deepspeed_stage_2", "fsdp FULL_SHARD"};
  auto form = detail::strategy_form(kNames[stage]);
  if (offloads.offload_optimizer) form.optimizer = detail::Kept::kOffloaded;
  if (offloads.offload_param) form.parameters = detail::Kept::kOffloaded;
  return form;
}

std::int64_t bytes_of(const MemoryQuestion& q, const Offloads& offloads,
                      const detail::ElementBytes& element) {
  const detail::ModelSpread model{.parameters = static_cast<double>(q.params),
                                  .largest_unit = static_cast<double>(q.stage == 3 ? q.largest_layer : 0),
                                  .ranks = static_cast<double>(q.gpus_per_node) * q.nodes};
  const auto bytes = detail::state_bytes(form_of(q.stage, offloads), element, model, /*on_device=*/false);
  return whole_bytes(detail::bytes_of(bytes.sum(), model));
}

std::vector<Offloads> offloads_of(int stage) {
  if (stage == 0) return {{false, false}};
  if (stage < 3) return {{false, false}, {true, false}};
  return {{false, false}, {true, false}, {true, true}};
}

const char* place(bool is_on_disk) { return is_on_disk ? "nvme" : "none"; }

}  // namespace

std::vector<RankMemory> estimate_rank_memory(const MemoryQuestion& question) {
  std::vector<RankMemory> rows;
  for (const auto& offloads : offloads_of(question.stage)) {
    rows.push_back({.offload_optimizer = offloads.offload_optimizer,
                    .offload_param = offloads.offload_param,
                    .fp32_bytes = bytes_of(question, offloads, kFp32),
                    .mixed_bytes = bytes_of(question, offloads, kMixed)});
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
