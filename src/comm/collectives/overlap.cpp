#include "comm/collectives/overlap.h"

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
bool has_region(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0 && tensor.is_non_overlapping_and_dense();
}

Region region_of(const at::Tensor& tensor, bool is_written) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return {begin, begin + tensor.nbytes(), is_written};
}

void add_written(Regions& regions, const at::Tensor& tensor) {
  if (has_region(tensor)) regions.push_back(region_of(tensor, true));
}

// Less `kept`, a part of it or nothing, which may be written.
void add_read(Regions& regions, const at::Tensor& tensor, const at::Tensor& kept) {
  if (!has_region(tensor)) return;
  const auto whole = region_of(tensor, false);
  if (!kept.defined()) return regions.push_back(whole);
  const auto hole = region_of(kept, false);
  if (whole.begin < hole.begin) regions.push_back({whole.begin, hole.begin});
  if (hole.end < whole.end) regions.push_back({hole.end, whole.end});
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

at::Tensor part_of(const at::Tensor& whole, int rank, std::int64_t elements) {
  return whole.view({-1}).narrow(0, rank * elements, elements);
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
  const auto& output = collective.output;
  const auto& input = collective.input;
  if (collective.kind == CollectiveKind::kAllGather && output.is_contiguous())
    return {input, part_of(output, rank, input.numel())};
  if (collective.kind == CollectiveKind::kReduceScatter && input.is_contiguous())
    return {part_of(input, rank, output.numel()), output};
  return {};
}

Regions regions_of(const Collective& collective, int rank) {
  Regions regions;
  add_written(regions, collective.output);
  for (const auto& tensor : collective.outputs) add_written(regions, tensor);
  const auto [goes, comes] = own_parts(collective, rank);
  const auto kept = lies_in_place(goes, comes) ? goes : at::Tensor();
  const auto& inputs = collective.inputs;
  add_read(regions, collective.input, kept);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    add_read(regions, inputs[i], i == static_cast<std::size_t>(rank) ? kept : at::Tensor());
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
  if (do_collide(regions_of(collective, rank))) {
    return "an output shares memory with another tensor";
  }
  return "";
}

}  // namespace lockstep::detail
