#include "formats/hugging_face_index.h"

#include <algorithm>
#include <set>

namespace lockstep::detail {
namespace {

using Json = nlohmann::json;

struct Index {
  Json weight_map = Json::object();
  std::size_t total_bytes = 0;
  std::set<std::string> files;
  bool is_whole = true;
};

std::size_t bytes_of(const TensorRecord& record) {
  return static_cast<std::size_t>(record.parts.front().elements) * safetensors::dtype_bytes(record.dtype);
}

std::string text_of(const Index& index) {
  return Json{{"metadata", {{"total_size", index.total_bytes}}}, {"weight_map", index.weight_map}}.dump(1) +
         "\n";
}

}  // namespace

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

}  // namespace lockstep::detail
