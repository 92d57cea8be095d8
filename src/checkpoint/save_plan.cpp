#include "checkpoint/save_plan.h"

#include <algorithm>
#include <cctype>
#include <iomanip>
#include <sstream>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

// Whole tensors go to the rank that has the least so far, large ones first.
std::map<std::string, int> deal(const TensorLeaves& leaves, int world_size) {
  std::vector<std::pair<std::size_t, std::string>> by_size;
  for (const auto& [path, leaf] : leaves) {
    if (leaf.is_whole) by_size.emplace_back(leaf.run.elements.nbytes(), path);
  }
  std::ranges::stable_sort(by_size, std::ranges::greater(), [](const auto& each) { return each.first; });
  std::vector<std::size_t> load(static_cast<std::size_t>(world_size));
  std::map<std::string, int> owners;
  for (const auto& [bytes, path] : by_size) {
    const auto least = std::ranges::min_element(load);
    *least += bytes;
    owners[path] = static_cast<int>(least - load.begin());
  }
  return owners;
}

std::string file_of(const std::string& entry, int rank, int world_size) {
  std::ostringstream file;
  file << entry << std::setfill('0') << '-' << std::setw(5) << rank + 1 << "-of-" << std::setw(5)
       << world_size << ".safetensors";
  return file.str();
}

std::string own_file(int rank) { return "rank_" + std::to_string(rank) + ".safetensors"; }

bool is_empty(const TensorShard& run) { return c10::multiply_integers(run.shape) == 0; }

// Of a tensor without elements, which has no run that anybody must write, rank 0 writes that there is one.
bool writes(const TensorShard& run, int rank) {
  return run.elements.numel() > 0 || (rank == 0 && is_empty(run));
}

}  // namespace

Share share_of(const std::string& entry, TensorLeaves leaves, StateDictType type, int rank, int world_size) {
  const bool has_shards = std::ranges::any_of(leaves, [](const auto& each) { return !each.second.is_whole; });
  const bool is_spread = world_size > 1 && (has_shards || type == StateDictType::kSharded);
  const auto owners = deal(leaves, is_spread ? world_size : 1);
  std::erase_if(leaves, [&](const auto& each) {
    const auto& [path, leaf] = each;
    return leaf.is_whole ? owners.at(path) != rank : !writes(leaf.run, rank);
  });
  if (!is_spread) {
    const auto file = entry + ".safetensors";
    return {.leaves = std::move(leaves), .file = file, .files = {file}};
  }
  Share share{.leaves = std::move(leaves), .file = file_of(entry, rank, world_size)};
  for (int each = 0; each < world_size; ++each) share.files.push_back(file_of(entry, each, world_size));
  return share;
}

Share own_share(TensorLeaves leaves, int rank, int world_size) {
  Share share{.leaves = std::move(leaves), .file = own_file(rank)};
  for (int each = 0; each < world_size; ++each) share.files.push_back(own_file(each));
  return share;
}

void check_entry_name(const std::string& entry) {
  const auto is_allowed = [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_' || letter == '-' || letter == '.';
  };
  const bool is_name = !entry.empty() && entry.front() != '.' && std::ranges::all_of(entry, is_allowed);
  if (is_name && entry != kOwnEntry) return;
  throw CheckpointError("checkpoint", {.what = "the name of an entry of a checkpoint",
                                       .expected = "letters, digits, _ - and ., not a . in front, not ranks",
                                       .got = "\"" + entry + "\""});
}

}  // namespace lockstep::detail
