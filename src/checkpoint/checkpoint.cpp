#include <lockstep/checkpoint/checkpoint.h>

#include <algorithm>
#include <cstring>
#include <string>

#include <ATen/core/Tensor.h>

#include <lockstep/base/error.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

#include "checkpoint/state_formats.h"
#include "checkpoint/together.h"
#include "formats/checkpoint_files.h"

namespace lockstep::detail {
namespace {

// A run of its elements, in row-major order.
at::Tensor run_in(const CheckpointFiles& files, const std::string& path, std::int64_t begin,
                  std::int64_t elements);

// A tensor over bytes that `owner` keeps alive.
at::Tensor tensor_on(std::span<std::byte> bytes, at::ScalarType type, std::shared_ptr<const void> owner) {
  const auto elements = static_cast<std::int64_t>(bytes.size() / c10::elementSize(type));
  return at::from_blob(
      bytes.data(), {elements}, [owner = std::move(owner)](void*) {}, type);
}

bool is_aligned(const void* address, at::ScalarType type) {
  return reinterpret_cast<std::uintptr_t>(address) % c10::elementSize(type) == 0;
}

void check_run(const std::string& path, std::int64_t begin, std::int64_t elements, std::int64_t total) {
  if (begin >= 0 && elements >= 0 && begin <= total && elements <= total - begin) return;
  throw CheckpointError("checkpoint",
                        {.what = "tensor " + path,
                         .expected = "a run of its " + std::to_string(total) + " elements",
                         .got = std::to_string(elements) + " from " + std::to_string(begin) + " on"});
}

// The tensor under `path`, whole. It lies in the file's pages where it can. @throws CheckpointError
at::Tensor tensor_in(const CheckpointFiles& files, const std::string& path) {
  const auto& shape = files.record(path).shape;
  return run_in(files, path, 0, c10::multiply_integers(shape)).view(shape);
}

at::Tensor run_in(const CheckpointFiles& files, const std::string& path, std::int64_t begin,
                  std::int64_t elements) {
  const auto& record = files.record(path);
  const auto type = scalar_type(record.dtype);
  const auto width = static_cast<std::int64_t>(c10::elementSize(type));
  check_run(path, begin, elements, c10::multiply_integers(record.shape));
  at::Tensor joined = at::empty({0}, type);
  for (const auto& part : record.parts) {
    const auto first = std::max(begin, part.begin),
               last = std::min(begin + elements, part.begin + part.elements);
    if (first >= last) continue;
    const auto bytes = files.bytes_of(path, part)
                           .subspan(static_cast<std::size_t>((first - part.begin) * width),
                                    static_cast<std::size_t>((last - first) * width));
    if (last - first == elements && is_aligned(bytes.data(), type))
      return tensor_on(bytes, type, files.file(part.file));
    if (joined.numel() == 0) joined = at::empty({elements}, type);
    std::memcpy(static_cast<std::byte*>(joined.mutable_data_ptr()) + (first - begin) * width, bytes.data(),
                bytes.size());
  }
  return joined;
}

}  // namespace
}  // namespace lockstep::detail

namespace lockstep {
namespace {

// Gives tensors as `files` have them, whatever is wanted.
detail::TensorSource whole_tensors(const detail::CheckpointFiles& files) {
  return [&](const std::string& path, const StateValue*) { return detail::tensor_in(files, path); };
}

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path& folder, Verify verify)
    : files_(std::make_shared<const detail::CheckpointFiles>(folder, verify)) {}

Checkpoint::Checkpoint(const std::filesystem::path& folder, Verify verify, const Communicator& communicator)
    : files_(detail::open_together(folder, verify, communicator)) {}

const CheckpointInfo& Checkpoint::info() const { return files_->manifest().info; }
const std::filesystem::path& Checkpoint::folder() const { return files_->folder(); }

StateTree Checkpoint::shared() const { return shared({}); }

StateTree Checkpoint::shared(const StateTree& wanted) const {
  const auto source = [&](const std::string& path, const StateValue* value) -> StateValue {
    const auto* shard = value ? std::get_if<TensorShard>(value) : nullptr;
    // A tensor of another shape is returned whole: the caller compares the shapes and names both.
    const bool fits = shard != nullptr && files_->record(path).shape == shard->shape;
    if (!fits) return detail::tensor_in(*files_, path);
    return TensorShard{.elements = detail::run_in(*files_, path, shard->begin, shard->elements.numel()),
                       .shape = shard->shape,
                       .begin = shard->begin};
  };
  StateTree tree;
  for (const auto& [name, value] : files_->manifest().shared.items())
    tree.set(name, detail::from_json(value, wanted.find(name), source));
  return tree;
}

StateTree Checkpoint::entry(const std::string& name) const {
  const auto& entries = files_->manifest().shared;
  const auto found = entries.find(name);
  if (found != entries.end()) {
    const auto value = detail::from_json(*found, nullptr, whole_tensors(*files_));
    if (const auto* tree = std::get_if<StateTree>(&value)) return *tree;
  }
  std::string known;
  for (const auto& each : entries.items()) known += (known.empty() ? "" : ", ") + each.key();
  throw CheckpointError("checkpoint", {.what = folder().string() + " has no tree \"" + name + "\"",
                                       .expected = "one of " + known});
}

StateTree Checkpoint::own(int rank) const {
  const auto& ranks = files_->manifest().own;
  if (rank < 0 || static_cast<std::size_t>(rank) >= ranks.size()) {
    throw CheckpointError("checkpoint",
                          {.what = folder().string() + " has no state of rank " + std::to_string(rank),
                           .expected = "a rank below " + std::to_string(ranks.size())});
  }
  const auto value =
      detail::from_json(ranks[static_cast<std::size_t>(rank)], nullptr, whole_tensors(*files_));
  if (const auto* tree = std::get_if<StateTree>(&value)) return *tree;
  throw CheckpointError("checkpoint", {.what = "the state of a rank in manifest.json", .expected = "a tree"});
}

}  // namespace lockstep
