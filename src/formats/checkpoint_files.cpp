#include "formats/checkpoint_files.h"

#include <algorithm>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/formats/checksum.h>

#include "formats/checkpoint_folders.h"
#include "formats/zero_checkpoint.h"

namespace lockstep::detail {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& what, std::string expected,
                         std::string got) {
  throw CheckpointError(
      "checkpoint",
      {.what = file.string() + ": " + what, .expected = std::move(expected), .got = std::move(got)});
}

Manifest manifest_in(const std::filesystem::path& folder) {
  if (has_zero_files(folder))
    throw CheckpointError(
        "checkpoint",
        {.what = folder.string() + " is a checkpoint of DeepSpeed",
         .expected = "one of lockstep",
         .hint =
             "start from its weights with --init_weights, or make a file of them: lockstep zero-to-fp32"});
  return read_manifest(folder);
}

// The gaps between `runs`, which are in order and do not overlap.
template <class Runs>
std::string checksum_outside(std::span<const std::byte> bytes, const Runs& runs) {
  Checksum sum;
  std::uint64_t end = 0;
  for (const auto& [offset, length] : runs) {
    sum.add(bytes.subspan(end, offset - end));
    end = offset + length;
  }
  sum.add(bytes.subspan(end));
  return sum.digits();
}

}  // namespace

CheckpointFiles::CheckpointFiles(const std::filesystem::path& folder, Verify verify, const OpenShare& share)
    : folder_(place_of_checkpoint(tagged_folder(folder))), verify_(verify), manifest_(manifest_in(folder_)) {
  for (const auto& [name, record] : manifest_.files) {
    auto mapped = std::make_shared<const MappedFile>(folder_ / name, MappedFile::Access::kPrivate);
    if (mapped->bytes().size() != record.bytes) {
      refuse(folder_ / name, "has another size", std::to_string(record.bytes) + " bytes",
             std::to_string(mapped->bytes().size()));
    }
    files_.emplace(name, std::move(mapped));
  }
  const auto found = runs();
  if (verify_ == Verify::kAll) check_share(found, share);
}

void CheckpointFiles::require_apart(const std::filesystem::path& output) const {
  const auto is_own = [&](const std::filesystem::path& file) {
    std::error_code is_missing;
    return std::filesystem::equivalent(file, output, is_missing);
  };
  const auto has = [&](const auto& entry) { return is_own(folder_ / entry.first); };
  if (!is_own(folder_) && !is_own(folder_ / kManifestName) && std::ranges::none_of(manifest_.files, has))
    return;
  throw ConfigError("checkpoint", {.what = "the file to write",
                                   .expected = "a new one, or one of another folder",
                                   .got = "'" + output.string() + "', which the checkpoint is made of"});
}

const std::shared_ptr<const MappedFile>& CheckpointFiles::file(const std::string& name) const {
  const auto found = files_.find(name);
  if (found == files_.end())
    refuse(folder_ / kManifestName, "the file " + name, "to be listed", "not listed");
  return found->second;
}

const TensorRecord& CheckpointFiles::record(const std::string& path) const {
  const auto found = manifest_.tensors.find(path);
  if (found == manifest_.tensors.end())
    refuse(folder_ / kManifestName, "the tensor " + path, "to be listed", "not listed");
  return found->second;
}

std::span<std::byte> CheckpointFiles::bytes_of(const std::string& path, const TensorPart& part) const {
  const auto& known = record(path);
  if (verify_ == Verify::kNeeded) check_part(path, known, part);
  return place_of(path, known, part);
}

std::span<std::byte> CheckpointFiles::place_of(const std::string& path, const TensorRecord& record,
                                               const TensorPart& part) const {
  const auto all = file(part.file)->writable_bytes();
  std::size_t length = 0;
  const bool is_huge = __builtin_mul_overflow(static_cast<std::size_t>(part.elements),
                                              safetensors::dtype_bytes(record.dtype), &length);
  if (is_huge || part.offset > all.size() || length > all.size() - part.offset)
    refuse(folder_ / part.file, "tensor " + path, "bytes within the file", "beyond its end");
  return all.subspan(part.offset, length);
}

void CheckpointFiles::check_part(const std::string& path, const TensorRecord& record,
                                 const TensorPart& part) const {
  const auto found = checksum(place_of(path, record, part));
  if (found != part.checksum)
    refuse(folder_ / part.file, "tensor " + path + " is damaged", "checksum " + part.checksum, found);
}

// The byte runs of all parts, in order. Since no parts overlap, reading them takes no more than the size of
// the files.
CheckpointFiles::RunsByFile CheckpointFiles::runs() const {
  RunsByFile runs;
  for (const auto& [path, record] : manifest_.tensors) {
    for (const auto& part : record.parts)
      runs[part.file].emplace_back(part.offset, place_of(path, record, part).size());
  }
  for (auto& [name, of_file] : runs) {
    std::ranges::sort(of_file);
    std::uint64_t end = 0;
    for (const auto& [offset, length] : of_file) {
      if (offset < end) refuse(folder_ / name, "two tensors", "places of their own", "one place");
      end = offset + length;
    }
  }
  return runs;
}

// All tensors and files form a row, of which each share is a contiguous part of about equal size.
void CheckpointFiles::check_share(const RunsByFile& runs, const OpenShare& share) const {
  std::uint64_t total = 0;
  for (const auto& [name, record] : manifest_.files) total += record.bytes;
  const auto bytes_of_share = total / static_cast<std::uint64_t>(share.count) + 1;
  std::uint64_t begin = 0;
  const auto is_ours = [&](std::uint64_t bytes) {
    const auto owner = std::exchange(begin, begin + bytes) / bytes_of_share;
    return owner == static_cast<std::uint64_t>(share.index);
  };
  for (const auto& [path, record] : manifest_.tensors) {
    for (const auto& part : record.parts)
      if (is_ours(place_of(path, record, part).size())) check_part(path, record, part);
  }
  for (const auto& [name, record] : manifest_.files) {
    const auto found = runs.find(name);
    const auto of_file = found == runs.end() ? std::vector<Run>() : found->second;
    auto outside = record.bytes;
    for (const auto& [offset, length] : of_file) outside -= length;
    if (is_ours(outside)) check_outside(name, record, of_file);
  }
}

void CheckpointFiles::check_outside(const std::string& name, const FileRecord& record,
                                    const std::vector<Run>& runs) const {
  const auto found = checksum_outside(file(name)->bytes(), runs);
  if (found != record.checksum)
    refuse(folder_ / name, "is damaged outside of its tensors", "checksum " + record.checksum, found);
}

}  // namespace lockstep::detail
