#include <lockstep/formats/checkpoint_tools.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/options.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/formats/torch_file.h>

#include "base/format.h"
#include "formats/checkpoint_files.h"
#include "formats/checkpoint_folders.h"
#include "formats/file_text.h"
#include "formats/torch_file.h"

namespace lockstep::detail {
namespace {

// A line for each tensor and value of a safetensors file or a file of torch.save, and for what is not read of
// it.
// @throws IoError when it cannot be read; CheckpointError when it is neither, or damaged
std::string describe_file(const std::filesystem::path& file);

// "F32 [2, 3]"
std::string kind_text(safetensors::Dtype dtype, const std::vector<std::int64_t>& shape) {
  std::string text(safetensors::dtype_name(dtype));
  text += " [";
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    text += (dim > 0 ? ", " : "") + std::to_string(shape[dim]);
  return text + "]";
}

/// Lines by what they are about, in the order of the file.
struct Lines {
  std::string tensors, values, unread;
};

std::string plain_text(const pickle::Value& value) {
  std::ostringstream text;
  if (const auto* flag = value.as<bool>()) text << (*flag ? "true" : "false");
  if (const auto* number = value.as<std::int64_t>()) text << *number;
  if (const auto* number = value.as<double>()) text << number_text(*number);
  if (const auto* string = value.as<std::string>()) text << '"' << *string << '"';
  if (const auto* bytes = value.as<pickle::Bytes>()) text << bytes->size() << " bytes";
  if (const auto* name = value.as<pickle::Name>()) text << name->text;
  return text.str().empty() ? std::string(value.kind()) : text.str();
}

std::string key_text(const pickle::Value& key) {
  if (const auto* text = key.as<std::string>()) return *text;
  if (const auto* foreign = key.as<pickle::Foreign>()) return foreign->what;
  return plain_text(key);
}

std::string tensor_text(const pickle::Tensor& tensor) {
  std::uint64_t bytes = safetensors::dtype_bytes(tensor.dtype);
  for (const auto extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
  return kind_text(tensor.dtype, tensor.shape) + " " + std::to_string(bytes) + " bytes";
}

void collect(const pickle::Value& value, const std::string& path, Lines& lines);

template <class Items>
void collect_items(const Items& items, const std::string& path, Lines& lines) {
  std::size_t number = 0;
  for (const auto& item : items) collect(item, path + "/" + std::to_string(number++), lines);
}

void collect(const pickle::Value& value, const std::string& path, Lines& lines) {
  const auto line = [&](const std::string& text) { return "  " + printable(path + ": " + text) + "\n"; };
  if (const auto* dict = value.as<pickle::Dict>()) {
    if (dict->entries.empty() && !path.empty()) lines.values += line("{}");
    for (const auto& [key, held] : dict->entries)
      collect(held, (path.empty() ? "" : path + "/") + key_text(key), lines);
  } else if (const auto* list = value.as<pickle::List>()) {
    if (list->empty()) lines.values += line("[]");
    collect_items(*list, path, lines);
  } else if (const auto* tuple = value.as<pickle::Tuple>()) {
    if (tuple->items.empty()) lines.values += line("()");
    collect_items(tuple->items, path, lines);
  } else if (const auto* tensor = value.as<pickle::Tensor>()) {
    lines.tensors += line(tensor_text(*tensor));
  } else if (const auto* foreign = value.as<pickle::Foreign>()) {
    lines.unread += line(foreign->what);
  } else {
    lines.values += line(plain_text(value));
  }
}

std::string describe_torch_file(const std::filesystem::path& path, MappedFile mapping) {
  const OpenedTorchFile file(path, std::move(mapping));
  Lines lines;
  collect(file.named_values(), "", lines);
  auto text = printable(file.where()) + ": a file of torch.save\ntensors\n" + lines.tensors + "values\n" +
              lines.values;
  if (!lines.unread.empty())
    text += "not read: objects of Python, of which nothing is executed\n" + lines.unread;
  return text;
}

std::string describe_file(const std::filesystem::path& path) {
  MappedFile mapping(path);
  if (torch_file::is_torch_file(mapping.bytes())) return describe_torch_file(path, std::move(mapping));
  const safetensors::File file(path);
  auto text = printable(path.string()) + ": a safetensors file\ntensors\n";
  for (const auto& tensor : file.tensors())
    text += "  " + printable(tensor.name + ": " + kind_text(tensor.dtype, tensor.shape)) + " " +
            std::to_string(tensor.bytes.size()) + " bytes\n";
  if (!file.metadata().empty()) text += "values\n";
  for (const auto& [key, value] : file.metadata())
    text += "  " + printable(key + ": \"" + value + '"') + "\n";
  return text;
}

}  // namespace
}  // namespace lockstep::detail

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using detail::CheckpointFiles;
using detail::Manifest;
using detail::printable;
using detail::TensorRecord;
using Json = nlohmann::ordered_json;

std::uint64_t bytes_of(const TensorRecord& record) {
  std::uint64_t bytes = 0;
  for (const auto& part : record.parts)
    bytes += static_cast<std::uint64_t>(part.elements) * safetensors::dtype_bytes(record.dtype);
  return bytes;
}

// The checksum of its bytes; of a tensor in several parts that of each.
std::string describe(const TensorRecord& record) {
  std::ostringstream text;
  text << detail::kind_text(record.dtype, record.shape) << ' ' << bytes_of(record) << " bytes in";
  for (const auto& part : record.parts) text << ' ' << part.file << ' ' << part.checksum;
  return text.str();
}

using Texts = std::map<std::string, std::string>;  // what tensors and values are, by their paths

constexpr auto kConfiguration = "hyper_parameters";  // of checkpoints; in a run directory: config.yaml

// The options that `yaml` sets, by their keys; the whole text where it is none that a run has written. Where
// the run writes is left out: it is no parameter of what it computes.
void collect_options(const std::string& yaml, Texts& values) {
  const auto below = [](const std::string& key) { return kConfiguration + ("/" + key); };
  try {
    for (const auto& assignment : read_yaml(yaml, kConfiguration)) {
      for (auto& [key, value] : single_values(assignment)) values[below(key)] = std::move(value);
    }
    values.erase(below("run_dir"));
  } catch (const ConfigError&) {
    values[kConfiguration] = yaml;
  }
}

// Every value that is no tensor, by its path.
void collect(const Json& value, const std::string& path, Texts& values) {
  if (value.is_object() && value.contains("tensor")) return;
  if (value.is_object() && value.contains("tree")) {
    for (const auto& [name, inner] : value["tree"].items()) collect(inner, path + "/" + name, values);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) collect(value[i], path + "/" + std::to_string(i), values);
  } else {
    values[path] = value.dump();
  }
}

Texts values_of(const Manifest& manifest) {
  Texts values;
  for (const auto& [name, value] : manifest.shared.items()) collect(value, name, values);
  for (std::size_t rank = 0; rank < manifest.own.size(); ++rank)
    collect(manifest.own[rank], "ranks/" + std::to_string(rank), values);
  return values;
}

std::vector<std::byte> whole(const CheckpointFiles& files, const std::string& path,
                             const TensorRecord& record) {
  std::vector<std::byte> bytes;
  bytes.reserve(bytes_of(record));
  for (const auto& part : record.parts) {
    const auto run = files.bytes_of(path, part);
    bytes.insert(bytes.end(), run.begin(), run.end());
  }
  return bytes;
}

// The checksum of all parts. The manifest has that of a single part, which was checked when the files were
// opened.
std::string checksum_of(const CheckpointFiles& files, const std::string& path, const TensorRecord& record) {
  if (record.parts.size() == 1) return record.parts.front().checksum;
  Checksum sum;
  for (const auto& part : record.parts) sum.add(files.bytes_of(path, part));
  return sum.digits();
}

// A text that is equal for equal tensors, however they were divided into parts.
std::string content(const CheckpointFiles& files, const std::string& path) {
  const auto& record = files.record(path);
  return detail::kind_text(record.dtype, record.shape) + ' ' + checksum_of(files, path, record);
}

Texts contents_of(const CheckpointFiles& files) {
  auto contents = values_of(files.manifest());
  const auto& shared = files.manifest().shared;
  if (const auto yaml = shared.find(kConfiguration); yaml != shared.end() && yaml->is_string()) {
    contents.erase(kConfiguration);
    collect_options(yaml->get<std::string>(), contents);
  }
  for (const auto& [path, record] : files.manifest().tensors) contents[path] = content(files, path);
  return contents;
}

Texts contents_of_file(const fs::path& path) {
  if (torch_file::is_torch_file(MappedFile(path).bytes()))
    throw CheckpointError("checkpoint", {.what = "'" + path.string() + "' cannot be compared",
                                         .expected = "a checkpoint, or a safetensors file",
                                         .got = "a file of torch.save",
                                         .hint = "lockstep inspect shows what it holds"});
  const safetensors::File file(path);
  Texts contents;
  for (const auto& tensor : file.tensors())
    contents[tensor.name] = detail::kind_text(tensor.dtype, tensor.shape) + ' ' + checksum(tensor.bytes);
  for (const auto& [key, value] : file.metadata()) contents["__metadata__/" + key] = value;
  return contents;
}

// Refuses pipes, among others: opening one would wait for its writer.
void require_file_or_folder(const fs::path& path) {
  std::error_code ignored;
  const auto status = fs::status(path, ignored);
  if (!fs::exists(status) || fs::is_regular_file(status) || fs::is_directory(status)) return;
  throw CheckpointError("checkpoint", {.what = "'" + path.string() + "' is no checkpoint",
                                       .expected = "a folder, or a file of safetensors or torch.save",
                                       .got = fs::is_fifo(status)     ? "a pipe"
                                              : fs::is_socket(status) ? "a socket"
                                                                      : "a device"});
}

// The checkpoint at the end of a run, if there is one, and its configuration.
Texts contents_of_run(const fs::path& run) {
  const auto last = run / "checkpoints" / "last.ckpt";
  std::error_code ignored;
  auto contents = fs::exists(last, ignored) ? contents_of(CheckpointFiles(last, Verify::kAll)) : Texts();
  const MappedFile config(run / "config.yaml");
  const auto bytes = config.bytes();
  std::erase_if(contents, [](const auto& entry) { return entry.first.starts_with(kConfiguration); });
  collect_options(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), contents);
  return contents;
}

Texts contents_of(const fs::path& path) {
  require_file_or_folder(path);
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return contents_of_file(path);
  const bool is_run =
      fs::exists(path / "config.yaml", ignored) && !fs::exists(path / detail::kManifestName, ignored);
  return is_run ? contents_of_run(path) : contents_of(CheckpointFiles(path, Verify::kAll));
}

// The epoch and step of the checkpoint; a loop of the program's own may not have stored them.
std::string place_in_run(const Manifest& manifest) {
  const bool is_of_trainer = manifest.shared.contains("loops");
  const auto place = [&](const std::string& name, std::int64_t number) {
    return is_of_trainer || number != 0 ? name + " " + std::to_string(number) + ", " : "";
  };
  return place("epoch", manifest.info.epoch) + place("step", manifest.info.global_step);
}

// Readers recognize the format by the name of the file.
void check_is_safetensors(const fs::path& file) {
  detail::require_name(file);
  if (file.extension() == ".safetensors") return;
  throw ConfigError("checkpoint",
                    {.what = "the file to write",
                     .expected = "NAME.safetensors",
                     .got = detail::in_quotes(file.string()),
                     .hint = "lockstep zero-to-fp32 writes a model in float32 as NAME.pt, too"});
}

}  // namespace

std::string describe_checkpoint(const fs::path& folder, Verify verify) {
  require_file_or_folder(folder);
  std::error_code ignored;
  if (fs::is_regular_file(folder, ignored)) return detail::describe_file(folder);
  const CheckpointFiles files(folder, verify);
  const auto& manifest = files.manifest();
  std::ostringstream text;
  text << detail::tagged_folder(folder).string() << ": " << place_in_run(manifest) << manifest.info.world_size
       << " ranks, strategy " << printable(manifest.info.strategy) << "\n";
  for (const auto& [name, version] : manifest.info.versions)
    text << "  written by " << printable(name + ' ' + version) << "\n";
  text << "files\n";
  for (const auto& [name, record] : manifest.files)
    text << "  " << printable(name) << ": " << record.bytes << " bytes\n";
  text << "tensors\n";
  for (const auto& [path, record] : manifest.tensors)
    text << "  " << printable(path + ": " + describe(record)) << "\n";
  text << "values\n";
  for (const auto& [path, value] : values_of(manifest))
    text << "  " << printable(path + ": " + value) << "\n";
  if (verify == Verify::kAll) text << "every checksum fits\n";
  return text.str();
}

std::vector<std::string> compare_checkpoints(const fs::path& before, const fs::path& after) {
  const auto old_contents = contents_of(before);
  const auto new_contents = contents_of(after);
  std::set<std::string> paths;
  for (const auto& [path, value] : old_contents) paths.insert(path);
  for (const auto& [path, value] : new_contents) paths.insert(path);
  std::vector<std::string> lines;
  paths.erase("run_seconds");  // of the clock: no two runs are alike in it
  for (const auto& path : paths) {
    const auto was = old_contents.find(path), is = new_contents.find(path);
    const bool both = was != old_contents.end() && is != new_contents.end();
    if (both && was->second == is->second) continue;
    if (was != old_contents.end()) lines.push_back("- " + printable(path + ": " + was->second));
    if (is != new_contents.end()) lines.push_back("+ " + printable(path + ": " + is->second));
  }
  return lines;
}

void consolidate_checkpoint(const fs::path& folder, const std::string& entry, const fs::path& file) {
  check_is_safetensors(file);
  const CheckpointFiles files(folder, Verify::kNeeded);
  files.require_apart(file);
  std::map<std::string, std::vector<std::byte>> joined;  // of tensors in several parts
  std::vector<safetensors::TensorView> views;
  std::set<std::string> entries;
  for (const auto& [path, record] : files.manifest().tensors) {
    const auto slash = path.find('/');
    entries.insert(path.substr(0, slash));
    if (path.substr(0, slash) != entry) continue;
    const auto name = slash == std::string::npos ? std::string("tensor") : path.substr(slash + 1);
    std::span<const std::byte> bytes;
    if (record.parts.size() == 1) {
      bytes = files.bytes_of(path, record.parts.front());
    } else {
      bytes = joined[path] = whole(files, path, record);
    }
    views.push_back({.name = name, .dtype = record.dtype, .shape = record.shape, .bytes = bytes});
  }
  if (views.empty()) {
    std::string known;
    for (const auto& each : entries) known += (known.empty() ? "" : ", ") + each;
    throw CheckpointError("checkpoint", {.what = folder.string() + " has no tensors of \"" + entry + "\"",
                                         .expected = "one of " + known});
  }
  safetensors::write(file, views, {{"format", "pt"}});
}

}  // namespace lockstep
