#include "profilers/report_file.h"

#include <fstream>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

std::string path_safe(std::string_view name) {
  std::string safe;
  for (const char letter : name) {
    const bool refused = std::string_view("\\/:*?\"<>|\n\r\t_").find(letter) != std::string_view::npos;
    if (!refused) safe += letter;
    if (refused && !safe.ends_with('_')) safe += '_';
  }
  const auto first = safe.find_first_not_of(' ');
  return first == std::string::npos ? "" : safe.substr(first, safe.find_last_not_of(' ') - first + 1);
}

}  // namespace

std::string report_file_name(const std::optional<std::string>& stage, std::string_view filename,
                             const std::optional<int>& rank, std::string_view extension) {
  std::string name;
  const auto add = [&name](std::string_view part) { name.append(name.empty() ? "" : "-").append(part); };
  if (stage) add(*stage);
  if (!filename.empty()) add(filename);
  if (rank) add(std::to_string(*rank));
  name = path_safe(name);
  return (name.empty() ? "profile" : name).append(extension);
}

void append_to_file(const std::filesystem::path& file, std::string_view text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream stream(file, std::ios::app);
  stream << text << std::flush;
  if (!stream) throw IoError("profilers", {.what = "cannot write '" + file.string() + "'"});
}

}  // namespace lockstep::detail
