// Reads folders of torch.distributed.checkpoint (DCP).
#include <algorithm>
#include <map>
#include <memory>

#include <ATen/ops/zeros.h>

#include <lockstep/base/error.h>
#include <lockstep/checkpoint/interop.h>

#include "checkpoint/state_formats.h"
#include "formats/torch_file.h"

// A folder of torch.distributed.checkpoint: .metadata is a pickle that says for every entry, by its flat
// name, which shape it has and which pieces of it were stored where; the other files are rows of pieces, each
// a whole file of torch.save.
namespace lockstep {
namespace {

namespace fs = std::filesystem;
using pickle::Dict;
using pickle::Meaning;
using pickle::Value;
using Numbers = std::vector<std::int64_t>;
using Path = std::vector<std::string>;  // of an entry in the tree that was saved

constexpr std::size_t kMaxDims = 64;

constexpr pickle::Global kGlobals[] = {
    {"torch.distributed.checkpoint.metadata.Metadata", Meaning::kRecord},
    {"torch.distributed.checkpoint.metadata.TensorStorageMetadata", Meaning::kRecord},
    {"torch.distributed.checkpoint.metadata.BytesStorageMetadata", Meaning::kRecord},
    {"torch.distributed.checkpoint.metadata.ChunkStorageMetadata", Meaning::kRecord},
    {"torch.distributed.checkpoint.metadata.TensorProperties", Meaning::kRecord},
    {"torch.distributed.checkpoint.metadata.MetadataIndex", Meaning::kRecord},
    {"torch.distributed.checkpoint.metadata.StorageMeta", Meaning::kRecord},
    {"torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING", Meaning::kFirstArgument},
    {"torch.distributed.checkpoint.filesystem._StorageInfo", Meaning::kRecord},
};

std::vector<pickle::Global> globals() {
  const auto torch = pickle::torch_globals();
  std::vector<pickle::Global> all(torch.begin(), torch.end());
  all.insert(all.end(), std::begin(kGlobals), std::end(kGlobals));
  return all;
}

/// One stored piece of an entry.
struct Piece {
  Numbers offsets;  // in the tensor; none for what is no tensor
  std::string file;
  std::int64_t offset = 0;
  std::int64_t length = 0;
};

class Reader {
 public:
  explicit Reader(const fs::path& folder) : folder_(folder), where_((folder / ".metadata").string()) {}

  StateTree read() {
    const MappedFile file(where_);
    const auto document = pickle::parse(file.bytes(), globals());
    if (!document) refuse("is no metadata of a distributed checkpoint, or is refused", document.error());
    const auto& metadata = as<Dict>(&document->root, "the metadata");
    const auto pieces = pieces_of(as<Dict>(metadata.find("storage_data"), "storage_data"));
    const auto paths = paths_of(metadata.find("planner_data"));
    std::vector<std::pair<Path, StateValue>> entries;
    for (const auto& [key, held] :
         as<Dict>(metadata.find("state_dict_metadata"), "state_dict_metadata").entries) {
      const auto& name = as<std::string>(&key, "the name of an entry");
      const auto found = pieces.find(name);
      if (found == pieces.end()) refuse("says of no file that it holds an entry", name);
      const auto path = paths.find(name);
      entries.emplace_back(path == paths.end() ? Path{name} : path->second,
                           entry(name, as<Dict>(&held, name), found->second));
    }
    return tree(entries, 0);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& got) const {
    throw CheckpointError("checkpoint", {.what = "'" + where_ + "' " + what, .got = got});
  }

  template <class T>
  const T& as(const Value* value, const std::string& name) const {
    const auto* held = value == nullptr ? nullptr : value->as<T>();
    if (held == nullptr)
      refuse("is damaged: " + name, value == nullptr ? "none" : std::string(value->kind()));
    return *held;
  }

  Numbers numbers(const Value* value, const std::string& name) const {
    Numbers numbers;
    for (const auto& item : as<pickle::Tuple>(value, name).items)
      numbers.push_back(as<std::int64_t>(&item, name));
    if (numbers.size() > kMaxDims || std::ranges::any_of(numbers, [](auto number) { return number < 0; }))
      refuse("is damaged: " + name, "impossible numbers");
    return numbers;
  }

  std::map<std::string, std::vector<Piece>> pieces_of(const Dict& storage_data) const {
    std::map<std::string, std::vector<Piece>> pieces;
    for (const auto& [key, held] : storage_data.entries) {
      const auto& index = as<Dict>(&key, "an index");
      const auto& info = as<Dict>(&held, "a place");
      const auto& name = as<std::string>(index.find("fqn"), "fqn");
      const auto* offset = index.find("offset");
      const bool is_tensor = offset != nullptr && offset->as<pickle::None>() == nullptr;
      pieces[name].push_back({.offsets = is_tensor ? numbers(offset, name) : Numbers{},
                              .file = as<std::string>(info.find("relative_path"), "relative_path"),
                              .offset = as<std::int64_t>(info.find("offset"), "offset"),
                              .length = as<std::int64_t>(info.find("length"), "length")});
      const auto* transforms = info.find("transform_descriptors");
      if (transforms != nullptr && transforms->as<pickle::None>() == nullptr)
        refuse("has entries that were transformed, such as compressed", name);
    }
    return pieces;
  }

  /// Where in the tree the entries stood; of a folder that does not say so, none.
  std::map<std::string, Path> paths_of(const Value* planner_data) const {
    std::map<std::string, Path> paths;
    if (planner_data == nullptr || planner_data->as<Dict>() == nullptr) return paths;
    for (const auto& [key, held] : planner_data->as<Dict>()->entries)
      paths.insert_or_assign(as<std::string>(&key, "planner_data"), path_of(held));
    return paths;
  }

  Path path_of(const Value& value) const {
    Path path;
    for (const auto& item : as<pickle::Tuple>(&value, "a path").items) {
      const auto* number = item.as<std::int64_t>();
      path.push_back(number != nullptr ? std::to_string(*number) : as<std::string>(&item, "a path"));
    }
    if (path.empty() || path.size() > pickle::kMaxDepth) refuse("is damaged: a path", "no path");
    return path;
  }

  /// The bytes of `piece`. Its file's name must be one in this folder.
  std::span<const std::byte> bytes_of(const Piece& piece) {
    const bool is_name = piece.file.ends_with(".distcp") &&
                         piece.file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!is_name) refuse("names no file beside it", piece.file);
    auto& file = files_[piece.file];
    if (!file) file = std::make_unique<MappedFile>(folder_ / piece.file);
    const auto size = static_cast<std::int64_t>(file->bytes().size());
    const bool fits =
        piece.offset >= 0 && piece.offset <= size && piece.length >= 0 && piece.length <= size - piece.offset;
    if (!fits) refuse("says more of a file than there is", piece.file);
    return file->bytes().subspan(static_cast<std::size_t>(piece.offset),
                                 static_cast<std::size_t>(piece.length));
  }

  StateValue value_of(const std::string& name, const Piece& piece) {
    const auto where = (folder_ / piece.file).string() + ", entry " + name;
    const auto contents = detail::torch_contents(bytes_of(piece), where);
    return detail::StateOfPickle(contents, where).value(contents.root());
  }

  StateValue entry(const std::string& name, const Dict& metadata, const std::vector<Piece>& pieces) {
    if (metadata.find("chunks") == nullptr) return value_of(name, pieces.front());
    const auto shape = numbers(metadata.find("size"), name);
    std::vector<at::Tensor> parts;
    for (const auto& piece : pieces) {
      auto part = value_of(name, piece);
      const auto* tensor = std::get_if<at::Tensor>(&part);
      if (tensor == nullptr) refuse("says that an entry is a tensor", name);
      parts.push_back(*tensor);
    }
    return joined(name, shape, pieces, parts);
  }

  /// The tensor of that shape, joined from its parts. No more memory is allocated than the parts take.
  at::Tensor joined(const std::string& name, const Numbers& shape, const std::vector<Piece>& pieces,
                    const std::vector<at::Tensor>& parts) const {
    std::int64_t stored = 0;
    std::int64_t elements = 1;
    for (const auto& part : parts) stored += part.numel();
    for (const auto extent : shape)
      if (__builtin_mul_overflow(elements, extent, &elements)) refuse("has an impossible shape", name);
    if (elements != stored) refuse("does not have all parts of an entry", name);
    auto whole = at::zeros(shape, parts.front().options());
    auto is_there = at::zeros(shape, at::kBool);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      check_part(name, whole, pieces[i].offsets, parts[i]);
      region(whole, pieces[i].offsets, parts[i]).copy_(parts[i]);
      region(is_there, pieces[i].offsets, parts[i]).fill_(true);
    }
    if (!is_there.all().item<bool>()) refuse("has parts of an entry that overlap and leave a gap", name);
    return whole;
  }

  void check_part(const std::string& name, const at::Tensor& whole, const Numbers& offsets,
                  const at::Tensor& part) const {
    const auto dims = static_cast<std::int64_t>(offsets.size());
    if (part.dim() != dims || whole.dim() != dims || part.scalar_type() != whole.scalar_type())
      refuse("has a part of another kind than its entry", name);
    for (std::int64_t dim = 0; dim < dims; ++dim) {
      const auto offset = offsets[static_cast<std::size_t>(dim)];
      if (offset > whole.size(dim) || part.size(dim) > whole.size(dim) - offset)
        refuse("has a part that reaches out of its entry", name);
    }
  }

  /// What `part` covers of `whole`.
  static at::Tensor region(at::Tensor whole, const Numbers& offsets, const at::Tensor& part) {
    for (std::int64_t dim = 0; dim < part.dim(); ++dim)
      whole = whole.narrow(dim, offsets[static_cast<std::size_t>(dim)], part.size(dim));
    return whole;
  }

  /// The entries below their paths' first `depth` names, as trees.
  StateTree tree(std::vector<std::pair<Path, StateValue>>& entries, std::size_t depth) const {
    std::vector<std::string> order;
    std::map<std::string, std::vector<std::pair<Path, StateValue>>> groups;
    for (auto& entry : entries) {
      const auto& name = entry.first[depth];
      auto& group = groups[name];
      if (group.empty()) order.push_back(name);
      group.push_back(std::move(entry));
    }
    StateTree result;
    for (const auto& name : order) {
      auto& group = groups[name];
      const bool is_leaf =
          std::ranges::any_of(group, [&](const auto& each) { return each.first.size() == depth + 1; });
      if (is_leaf && group.size() > 1) refuse("has two entries in one place", name);
      result.set(name, is_leaf ? std::move(group.front().second) : StateValue(tree(group, depth + 1)));
    }
    return result;
  }

  const fs::path& folder_;
  std::string where_;
  std::map<std::string, std::unique_ptr<MappedFile>> files_;
};

}  // namespace

StateTree read_distributed_checkpoint(const fs::path& folder) { return Reader(folder).read(); }

}  // namespace lockstep
