#include "launch/host_messages.h"

#include <algorithm>

#include <lockstep/base/option_type.h>

namespace lockstep::launch {
namespace {

// Begins with a control character that no program prints by chance.
constexpr std::string_view kTitle = "\x1elockstep-node ";
constexpr std::string_view kReady = "ready";
constexpr std::string_view kFailure = "failure";

std::string_view next_word(std::string_view& text) {
  const auto word = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(text.size(), word.size() + 1));
  return word;
}

}  // namespace

std::string encode(const NodeReport& message) {
  if (message.is_ready) return std::string(kTitle) + std::string(kReady) + "\n";
  return std::string(kTitle) + std::string(kFailure) + " " + std::to_string(static_cast<int>(message.blame)) +
         " " + std::to_string(message.exit_code) + " " + message.cause + "\n";
}

std::optional<NodeReport> decode_message(std::string_view line) {
  if (!line.starts_with(kTitle)) return std::nullopt;
  line.remove_prefix(kTitle.size());
  if (line.ends_with('\n')) line.remove_suffix(1);
  const auto kind = next_word(line);
  if (kind == kReady) return NodeReport{.is_ready = true};
  const auto blame = OptionType<int>::parse(next_word(line)), code = OptionType<int>::parse(next_word(line));
  if (kind != kFailure || !blame || !code || *blame < 0 || *blame > static_cast<int>(Blame::kSignal))
    return std::nullopt;
  return NodeReport{.blame = static_cast<Blame>(*blame), .exit_code = *code, .cause = std::string(line)};
}

}  // namespace lockstep::launch
