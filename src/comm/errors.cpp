#include "comm/errors.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <string_view>

#include <lockstep/base/error.h>

#include "base/memory_failure.h"

namespace lockstep::detail {
namespace {

constexpr std::array<std::string_view, 6> kLostPhrases = {
    "Connection closed by peer", "Connection reset by peer",        "Broken pipe", "Socket closed",
    "Connection refused",        "Software caused connection abort"};
constexpr std::array<std::string_view, 4> kTimeoutPhrases = {"Timed out", "timed out", "timeout", "Timeout"};

template <std::size_t N>
bool says_any(const std::string& text, const std::array<std::string_view, N>& phrases) {
  return std::any_of(phrases.begin(), phrases.end(),
                     [&](std::string_view phrase) { return text.find(phrase) != std::string::npos; });
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::string plain_text(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  auto text = first_line(of_torch ? of_torch->what_without_backtrace() : failure_text(error));
  // Gloo's texts begin with "[/path/of/its/build/file.cc:123] ".
  if (text.starts_with("[/")) {
    const auto end = text.find("] ");
    if (end != std::string::npos) text.erase(0, end + 2);
  }
  return text;
}

std::string place_of(const FailedCollective& failed) {
  const bool is_job = failed.group.empty();
  return "rank " + std::to_string(failed.rank) + (is_job ? " of " + std::to_string(failed.size) : "") + ", " +
         failed.name + " seq " + std::to_string(failed.sequence) +
         (is_job ? "" : " of group " + failed.group);
}

void rethrow_translated(const FailedCollective& failed) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const auto text = plain_text(error);
    ErrorParts parts{.what = failed.name + " failed: " + text,
                     .expected = "",
                     .got = "",
                     .where = place_of(failed),
                     .hint = ""};
    const auto hint = [&](const std::string& usual) {
      return failed.hint.empty() ? usual : usual + "; " + failed.hint;
    };
    parts.hint = failed.hint;
    if (says_any(text, kLostPhrases)) {
      parts.hint = hint("another rank died or left: its own message tells why");
      throw PeerLost("comm", parts);
    }
    if (says_any(text, kTimeoutPhrases)) {
      parts.hint = hint("another rank is stuck or does not take part; see option timeout");
      throw Timeout("comm", parts);
    }
    throw CommError("comm", parts);
  }
}

}  // namespace lockstep::detail
