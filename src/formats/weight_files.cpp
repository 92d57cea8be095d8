#include "formats/weight_files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/formats/torch_file.h>

#include "base/folder_lock.h"
#include "formats/checkpoint_folders.h"
#include "formats/safetensors_header.h"

namespace lockstep::torch_file {
namespace {

// A storage. The result of `bytes` must stay valid until that of the next storage is requested.
struct StorageSource {
  std::string key;
  std::function<std::span<const std::byte>()> bytes;
};

// As write(), but requests the bytes of each storage only when it is written.
void write_each(zip::Writer& archive, const pickle::Value& root, std::span<const StorageSource> storages) {
  const std::string folder = "archive/";
  archive.add(folder + "data.pkl", pickle::write(root));
  archive.add(folder + "byteorder", "little");
  for (const auto& storage : storages) archive.add(folder + "data/" + storage.key, storage.bytes());
  archive.add(folder + "version", "3\n");
  archive.finish();
}

}  // namespace

void write(zip::Writer& archive, const pickle::Value& root, std::span<const StorageBytes> storages) {
  std::vector<StorageSource> sources;
  for (const auto& storage : storages)
    sources.push_back({.key = storage.key, .bytes = [&storage] { return storage.bytes; }});
  write_each(archive, root, sources);
}

void write(const std::filesystem::path& path, const pickle::Value& root,
           std::span<const StorageBytes> storages, const zip::WriterOptions& options) {
  write_file_atomically(path, [&](FileWriter& file) {
    zip::Writer archive([&](std::span<const std::byte> bytes) { file.write(bytes); }, options);
    write(archive, root, storages);
  });
}

}  // namespace lockstep::torch_file

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;
using Tensors = std::span<const StoredTensorView>;

using Sources = std::span<const WeightSource>;

/// The tensors in float32. They must outlive what is returned.
std::vector<WeightSource> sources_of(Tensors tensors) {
  std::vector<WeightSource> sources;
  for (const auto& tensor : tensors) {
    const auto dtype = as_float32(tensor.elements.dtype);
    sources.push_back(
        {.head = {tensor.name, dtype, tensor.shape,
                  safetensors::bytes_of_shape(tensor.name, dtype, tensor.shape)},
         .write = [&tensor](const ByteSink& sink) { write_as_float32(tensor.elements, sink); }});
  }
  return sources;
}

void write_file(const fs::path& file, Sources tensors) {
  std::vector<safetensors::TensorHead> heads;
  for (const auto& tensor : tensors) heads.push_back(tensor.head);
  const auto layout = safetensors::layout_of(heads, {{"format", "pt"}});
  write_file_atomically(file, [&](FileWriter& writer) {
    writer.write(layout.head);
    const ByteSink sink = [&](std::span<const std::byte> bytes) { writer.write(bytes); };
    for (const auto number : layout.order) tensors[number].write(sink);
  });
}

std::uint64_t bytes_of(const StoredTensorView& tensor) {
  return safetensors::bytes_of_shape(tensor.name, as_float32(tensor.elements.dtype), tensor.shape);
}

/// Numbers of tensors by the file that they go to, as huggingface_hub's split_torch_state_dict_into_shards
/// does.
std::vector<std::vector<std::size_t>> split(Sources tensors, std::uint64_t max_bytes) {
  std::vector<std::vector<std::size_t>> shards;
  std::vector<std::size_t> open;
  std::uint64_t open_bytes = 0;
  for (std::size_t number = 0; number < tensors.size(); ++number) {
    const std::uint64_t bytes = tensors[number].head.bytes;
    if (bytes > max_bytes) {
      shards.push_back({number});
      continue;
    }
    if (bytes > max_bytes - open_bytes) {
      shards.push_back(std::exchange(open, {}));
      open_bytes = 0;
    }
    open.push_back(number);
    open_bytes += bytes;
  }
  if (!open.empty() || shards.empty()) shards.push_back(open);
  return shards;
}

std::string shard_name(std::size_t number, std::size_t count) {
  if (count == 1) return "model.safetensors";
  char name[80];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", number + 1, count);
  return name;
}

void write_shards(const fs::path& folder, Sources tensors, std::uint64_t max_bytes) {
  const auto shards = split(tensors, max_bytes);
  nlohmann::json weight_map = nlohmann::json::object();
  std::uint64_t total = 0;
  for (std::size_t number = 0; number < shards.size(); ++number) {
    const auto name = shard_name(number, shards.size());
    std::vector<WeightSource> of_shard;
    for (const auto tensor : shards[number]) {
      of_shard.push_back(tensors[tensor]);
      weight_map[tensors[tensor].head.name] = name;
      total += tensors[tensor].head.bytes;
    }
    write_file(folder / name, of_shard);
  }
  if (shards.size() == 1) return;
  const nlohmann::json index{{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  write_file_atomically(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

/// A dict of tensors, and what gives the bytes of each. Borrows the tensors.
class StateDict {
 public:
  void add(const StoredTensorView& tensor) {
    const auto tied = tensor.tied_to.empty() ? numbers_.end() : numbers_.find(tensor.tied_to);
    numbers_.try_emplace(tensor.name, root_.entries.size());
    root_.set(tensor.name,
              tied == numbers_.end() ? stored(tensor) : pickle::Value(root_.entries[tied->second].second));
  }

  void write(zip::Writer& archive) const { torch_file::write_each(archive, root_, storages_); }

 private:
  pickle::Value stored(const StoredTensorView& tensor) {
    const auto key = std::to_string(storages_.size());
    const auto dtype = as_float32(tensor.elements.dtype);
    storages_.push_back({.key = key, .bytes = [this, &tensor] { return gathered(tensor); }});
    return pickle::Tensor{.storage = std::make_shared<const pickle::Storage>(
                              pickle::Storage{.key = key, .bytes = bytes_of(tensor), .dtype = dtype}),
                          .dtype = dtype,
                          .offset = 0,
                          .shape = tensor.shape,
                          .stride = row_major(tensor.shape)};
  }

  static std::vector<std::int64_t> row_major(const std::vector<std::int64_t>& shape) {
    std::vector<std::int64_t> stride(shape.size(), 1);
    for (std::size_t dim = stride.size(); dim-- > 1;)
      stride[dim - 1] = stride[dim] * std::max<std::int64_t>(shape[dim], 1);
    return stride;
  }

  std::span<const std::byte> gathered(const StoredTensorView& tensor) {
    buffer_.clear();
    buffer_.reserve(bytes_of(tensor));
    write_as_float32(tensor.elements, [this](std::span<const std::byte> bytes) {
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    });
    return buffer_;
  }

  pickle::Dict root_;
  std::unordered_map<std::string, std::size_t> numbers_;  // of entries, by name
  std::vector<torch_file::StorageSource> storages_;
  std::vector<std::byte> buffer_;  // of the tensor that is being written
};

void refuse_files_in(const fs::path& folder) {
  std::error_code ignored;
  const auto status = fs::status(folder, ignored);
  const bool is_free = !fs::exists(status) || (fs::is_directory(status) && fs::is_empty(folder, ignored));
  if (is_free) return;
  throw IoError("checkpoint", {.what = "'" + folder.string() + "' is not written",
                               .expected = "a folder that is empty or not there, or the name of a file: "
                                           "NAME.safetensors, NAME.pt, NAME.pth or NAME.bin",
                               .got = fs::is_directory(status) ? "a folder with files" : "a file"});
}

/// A folder that gets the name `target` when it is complete, and is removed otherwise. It is locked, so that
/// it can be distinguished from folders of killed processes.
class Draft {
 public:
  explicit Draft(const fs::path& target) : target_(target) {
    create_folders(target_.parent_path());
    remove_dead();
    path_ = new_sibling(target_, kDraft);
    lock_ = make_locked_folder(path_);
    if (lock_) return;
    throw IoError("checkpoint", {.what = "'" + path_.string() + "' cannot be created",
                                 .got = std::generic_category().message(errno)});
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    std::error_code ignored;
    if (!is_complete_) fs::remove_all(path_, ignored);
  }

  const fs::path& path() const { return path_; }

  void commit() {
    sync_folder(path_);
    std::error_code failure;
    fs::rename(path_, target_, failure);
    if (failure)
      throw IoError("checkpoint", {.what = "'" + target_.string() + "' is not written",
                                   .expected = "a folder that is empty or not there",
                                   .got = failure.message()});
    is_complete_ = true;
    sync_folder(target_.parent_path());
  }

 private:
  void remove_dead() const {
    for (const auto& draft : siblings(target_, kDraft)) {
      std::error_code ignored;
      if (!is_of_this_host(draft)) continue;
      if (const auto lock = lock_alone(draft)) fs::remove_all(draft, ignored);
    }
  }

  fs::path target_, path_;
  UniqueFd lock_;
  bool is_complete_ = false;
};

/// `folder` with all links resolved, since a folder cannot be renamed to a link.
fs::path behind_links(const fs::path& folder) {
  const auto named = fs::absolute(without_slash(folder));
  std::error_code failure;
  auto target = fs::weakly_canonical(named, failure);
  return failure ? named : target;
}

}  // namespace

void write_safetensors(const fs::path& file, Tensors tensors) { write_file(file, sources_of(tensors)); }

void write_state_dict(const fs::path& file, Tensors tensors) {
  StateDict dict;
  for (const auto& tensor : tensors) dict.add(tensor);
  write_file_atomically(file, [&](FileWriter& writer) {
    zip::Writer archive([&](std::span<const std::byte> bytes) { writer.write(bytes); });
    dict.write(archive);
  });
}

void write_sharded(const fs::path& folder, Tensors tensors, std::uint64_t max_bytes) {
  write_sharded(folder, sources_of(tensors), max_bytes, [](const fs::path&) {});
}

void write_sharded(const fs::path& folder, Sources tensors, std::uint64_t max_bytes,
                   const std::function<void(const fs::path&)>& add_files) {
  refuse_files_in(folder);
  Draft draft(behind_links(folder));
  add_files(draft.path());
  write_shards(draft.path(), tensors, max_bytes);
  draft.commit();
}

}  // namespace lockstep::detail
