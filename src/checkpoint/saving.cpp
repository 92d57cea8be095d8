#include "checkpoint/saving.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/base/version.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

#include "checkpoint/state_formats.h"
#include "formats/checkpoint_files.h"
#include "formats/checkpoint_folders.h"
#include "formats/safetensors_header.h"

namespace lockstep::detail {
namespace {

struct Index {
  nlohmann::json weight_map = nlohmann::json::object();
  std::size_t total_bytes = 0;
  std::set<std::string> files;
  bool is_whole = true;
};

std::size_t bytes_of(const TensorRecord& record) {
  return static_cast<std::size_t>(record.parts.front().elements) * safetensors::dtype_bytes(record.dtype);
}

std::string text_of(const Index& index) {
  return nlohmann::json{{"metadata", {{"total_size", index.total_bytes}}}, {"weight_map", index.weight_map}}
             .dump(1) +
         "\n";
}

// Names and texts of the index files: one for each entry of the state whose tensors lie in several files,
// and each tensor whole in one of them.
std::map<std::string, std::string> hugging_face_indices(const Manifest& manifest) {
  std::map<std::string, Index> indices;
  for (const auto& [path, record] : manifest.tensors) {
    const auto slash = path.find('/');
    if (path.starts_with("ranks/")) continue;
    auto& index = indices[path.substr(0, slash)];
    const auto& part = record.parts.front();
    index.is_whole &= record.parts.size() == 1;
    index.weight_map[part.name] = part.file;
    index.total_bytes += bytes_of(record);
    index.files.insert(part.file);
  }
  std::map<std::string, std::string> texts;
  for (const auto& [entry, index] : indices) {
    if (index.is_whole && *index.files.begin() != entry + ".safetensors")
      texts[entry + ".safetensors.index.json"] = text_of(index);
  }
  return texts;
}

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // stays in the cache between checksum and write

// A run that is the whole tensor keeps its shape; any other run becomes one dimension.
at::Tensor stored(const TensorShard& run) {
  const auto elements = stored_form(run.elements);
  const bool is_all = run.begin == 0 && elements.numel() == c10::multiply_integers(run.shape);
  return is_all ? elements.view(run.shape) : elements.view({-1});
}

std::string name_in_file(const std::string& path, std::size_t cut) {
  return path.size() > cut ? path.substr(cut) : "tensor";
}

std::string write_bytes(FileWriter& file, std::span<const std::byte> bytes) {
  Checksum sum;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
    sum.add(piece);
    file.write(piece);
    bytes = bytes.subspan(piece.size());
  }
  return sum.digits();
}

// Writes `leaves` to `folder` as the file `file`, durably: whole tensors in their shape, others as the run
// that they are. Names within the file are those paths without their first `cut` characters, or "tensor"
// where nothing is left. Adds what it wrote to `manifest`. Blocking.
// @throws IoError; CheckpointError naming a tensor that the file cannot hold
void write_shard_file(const std::filesystem::path& folder, const std::string& file,
                      const TensorLeaves& leaves, std::size_t cut, Manifest& manifest) {
  std::vector<at::Tensor> tensors;  // keeps the bytes alive while they are written
  std::vector<safetensors::TensorView> views;
  std::vector<safetensors::Dtype> dtypes;
  for (const auto& [path, leaf] : leaves) {
    tensors.push_back(stored(leaf.run));
    auto view = view_of(name_in_file(path, cut), tensors.back());
    dtypes.push_back(view.dtype);
    views.push_back(safetensors::in_format(std::move(view)));
  }
  const auto layout = safetensors::layout_of(views, {{"format", "pt"}});
  std::vector<std::string> checksums(views.size());
  write_file_atomically(folder / file, [&](FileWriter& writer) {
    writer.write(layout.head);
    for (const auto number : layout.order) checksums[number] = write_bytes(writer, views[number].bytes);
  });
  manifest.files[file] = {layout.file_bytes, checksum(std::as_bytes(std::span(layout.head)))};
  std::size_t number = 0;
  for (const auto& [path, leaf] : leaves) {
    manifest.tensors[path] = {.dtype = dtypes[number],
                              .shape = leaf.run.shape,
                              .parts = {{.file = file,
                                         .name = views[number].name,
                                         .offset = layout.offsets[number],
                                         .begin = leaf.run.begin,
                                         .elements = leaf.run.elements.numel(),
                                         .checksum = checksums[number]}}};
    ++number;
  }
}

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

// A tensor without elements has no run to write; rank 0 records that it exists.
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

Saving::Saving(const CheckpointInfo& info, const Communicator& communicator, TypeOfEntry type_of)
    : rank_(communicator.rank()), world_size_(communicator.size()), type_of_(std::move(type_of)) {
  manifest_.info = info;
  manifest_.info.world_size = world_size_;
  manifest_.info.versions = {{"lockstep", kVersion}, {"libtorch", TORCH_VERSION}};
}

void Saving::take(const CheckpointState& state) {
  check_info();
  take_shared(state.shared);
  take_own(state.own);
  std::set<std::string> files;
  for (const auto& entry : entries_) {
    for (const auto& file : entry.share.files) {
      if (!files.insert(file).second)
        throw CheckpointError("checkpoint",
                              {.what = "two entries would be written to one file", .got = file});
    }
  }
}

void Saving::write_files(const std::filesystem::path& folder) {
  for (const auto& [cut, share] : entries_) {
    if (!share.leaves.empty()) write_shard_file(folder, share.file, share.leaves, cut, manifest_);
  }
}

std::string Saving::part() const {
  auto part = to_json(manifest_.files, manifest_.tensors);
  part["own"] = own_;
  return part.dump();
}

void Saving::take_parts(std::span<const std::string> parts) {
  manifest_.files.clear();
  manifest_.tensors.clear();
  for (const auto& text : parts) {
    auto json = parse_strictly(text, "what a rank wrote");
    merge(json, manifest_);
    manifest_.own.push_back(std::move(json["own"]));
  }
  complete(manifest_);
}

void Saving::write_indices(const std::filesystem::path& folder) {
  for (auto& [name, text] : hugging_face_indices(manifest_)) {
    write_file_atomically(folder / name, text);
    manifest_.files[name] = {text.size(), checksum(std::as_bytes(std::span(text)))};
  }
}

std::string Saving::manifest_text() const {
  auto text = to_text(manifest_);
  (void)parse_manifest(
      text, kManifestName);  // refuses what could not be read before it replaces a readable manifest
  return text;
}

void Saving::check_info() const {
  const Manifest empty{
      .info = manifest_.info,
      .own = std::vector(static_cast<std::size_t>(world_size_), nlohmann::ordered_json::object())};
  (void)parse_manifest(to_text(empty), "CheckpointInfo");
}

void Saving::take_shared(const StateTree& state) {
  for (const auto& [name, value] : state.entries()) {
    check_entry_name(name);
    TensorLeaves leaves;
    add_member(manifest_.shared, name, to_json(value, name, leaves));
    if (leaves.empty()) continue;
    entries_.push_back(
        {name.size() + 1, share_of(name, std::move(leaves), type_of_(name), rank_, world_size_)});
  }
}

void Saving::take_own(const StateTree& state) {
  const auto path = std::string(kOwnEntry) + "/" + std::to_string(rank_);
  TensorLeaves leaves;
  own_ = to_json(state, path, leaves);
  entries_.push_back({path.size() + 1, own_share(std::move(leaves), rank_, world_size_)});
}

void write_manifest(const std::filesystem::path& folder, const std::string& text) {
  write_file_atomically(folder / kManifestName, text);
  write_file_atomically(folder / kManifestChecksumName,
                        checksum(std::as_bytes(std::span(text))) + "  " + kManifestName + "\n");
}

}  // namespace lockstep::detail
