#include "launch/error_files.h"

#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>

namespace lockstep::launch {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxShown = 1'000;

}  // namespace

// {"message": {"message": "TYPE: TEXT", ...}}, or {"message": "TYPE: TEXT"}.
std::string message_of_error_file(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("message")) return {};
  const auto& outer = json["message"];
  const auto& message = outer.is_object() && outer.contains("message") ? outer["message"] : outer;
  if (!message.is_string()) return {};
  auto line = message.get<std::string>();
  line = line.substr(0, std::min(line.find('\n'), kMaxShown));
  for (char& letter : line)
    if (std::iscntrl(static_cast<unsigned char>(letter)) != 0) letter = '?';
  return line;
}

std::filesystem::path ErrorFiles::file_of(int local_rank) const {
  return folder_.empty() ? folder_ : folder_ / std::to_string(local_rank) / "error.json";
}

std::string ErrorFiles::error_of(int local_rank) const {
  if (folder_.empty()) return {};
  std::string text(kMaxBytes, '\0');
  std::ifstream file(file_of(local_rank), std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return message_of_error_file(text);
}

}  // namespace lockstep::launch
