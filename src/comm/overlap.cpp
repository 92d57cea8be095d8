#include "comm/overlap.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lockstep::detail {
namespace {

// Where a tensor lies in memory.
struct Region {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool is_written = false;
};

using Regions = std::vector<Region>;

// Tensors with gaps may lie between each other's elements; a collective works on copies of them.
void add(Regions& regions, const at::Tensor& tensor, bool is_written) {
  if (!tensor.defined() || tensor.numel() == 0 || !tensor.is_non_overlapping_and_dense()) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  regions.push_back({begin, begin + tensor.nbytes(), is_written});
}

bool do_collide(Regions regions) {
  std::ranges::sort(regions, {}, &Region::begin);
  std::uintptr_t end_of_all = 0, end_of_written = 0;
  for (const auto& region : regions) {
    if (region.begin < (region.is_written ? end_of_all : end_of_written)) return true;
    end_of_all = std::max(end_of_all, region.end);
    if (region.is_written) end_of_written = std::max(end_of_written, region.end);
  }
  return false;
}

bool lies_in_place(const at::Tensor& input, const at::Tensor& part) {
  return input.defined() && part.defined() && input.const_data_ptr() == part.const_data_ptr() &&
         input.nbytes() == part.nbytes();
}

// Sums are made in memory of their own before they are written; messages and in-place kinds have one tensor.
bool may_collide(CollectiveKind kind) {
  return kind != CollectiveKind::kReduceScatter && kind != CollectiveKind::kReduce;
}

// What this rank gives to itself, and where that comes to.
std::pair<at::Tensor, at::Tensor> own_parts(const Collective& collective, int rank) {
  const auto own = static_cast<std::size_t>(rank);
  const auto& outputs = collective.outputs;
  const auto& inputs = collective.inputs;
  if (!outputs.empty() || !inputs.empty()) {
    return {own < inputs.size() ? inputs[own] : collective.input,
            own < outputs.size() ? outputs[own] : collective.output};
  }
  if (collective.kind != CollectiveKind::kAllGather || !collective.output.is_contiguous()) return {};
  const auto part = collective.input.numel();
  return {collective.input, collective.output.view({-1}).narrow(0, rank * part, part)};
}

Regions regions_of(const Collective& collective, int rank) {
  Regions regions;
  add(regions, collective.output, true);
  for (const auto& tensor : collective.outputs) add(regions, tensor, true);
  const auto [goes, comes] = own_parts(collective, rank);
  const bool is_in_place = lies_in_place(goes, comes);
  const auto add_input = [&](const at::Tensor& tensor) {
    if (!is_in_place || !tensor.is_same(goes)) add(regions, tensor, false);
  };
  add_input(collective.input);
  std::ranges::for_each(collective.inputs, add_input);
  return regions;
}

bool repeats_itself(const at::Tensor& tensor) {
  return tensor.defined() && at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
}

}  // namespace

std::string fault_in_memory(const Collective& collective, int rank) {
  if (repeats_itself(collective.output) || std::ranges::any_of(collective.outputs, repeats_itself)) {
    return "an output holds one element in several places (as after expand()), and cannot be written";
  }
  if (may_collide(collective.kind) && do_collide(regions_of(collective, rank))) {
    return "an output shares memory with another tensor";
  }
  return "";
}

}  // namespace lockstep::detail
