#include "checkpoint/weight_map.h"

#include <fstream>

#include <lockstep/base/error.h>

#include <nlohmann/json.hpp>

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_index(const fs::path& index, const std::string& what, const std::string& got,
                               const std::string& expected = "") {
  throw CheckpointError("checkpoint",
                        {.what = "'" + index.string() + "': " + what, .expected = expected, .got = got});
}

std::string checked_name(const fs::path& index, const nlohmann::json& value, const std::string& ending) {
  const auto* name = value.get_ptr<const nlohmann::json::string_t*>();
  const bool usable = name != nullptr && name->ends_with(ending) &&
                      name->find_first_of(std::string_view("/\\\0", 3)) == name->npos;
  if (!usable) refuse_index(index, "names no file beside it", value.dump().substr(0, 80), "NAME" + ending);
  return *name;
}

}  // namespace

std::map<std::string, std::string> read_weight_map(const fs::path& index, const std::string& ending) {
  std::ifstream file(index);
  if (!file) throw IoError("checkpoint", {.what = "'" + index.string() + "' cannot be read"});
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const bool usable = json.is_object() && json.contains("weight_map") && json["weight_map"].is_object();
  if (!usable)
    refuse_index(index, "no index of Hugging Face", json.is_discarded() ? "no JSON" : "another object");
  std::map<std::string, std::string> files;
  for (const auto& [name, value] : json["weight_map"].items()) files[name] = checked_name(index, value, ending);
  return files;
}

}  // namespace lockstep::detail
