#include "comm/verdict.h"

#include <sstream>

namespace lockstep::detail {
namespace {

constexpr char kSeparator = '\x1f';  // ASCII's own; no error text has it

}  // namespace

void Verdict::raise() const {
  switch (kind) {
    case VerdictKind::kMismatch:
      throw CollectiveMismatch("comm", parts);
    case VerdictKind::kTimeout:
      throw Timeout("comm", parts);
    case VerdictKind::kCommError:
      break;
  }
  throw CommError("comm", parts);
}

std::string to_text(const Verdict& verdict) {
  const auto& parts = verdict.parts;
  std::string text(1, static_cast<char>(verdict.kind));
  for (const auto* part : {&parts.what, &parts.expected, &parts.got, &parts.where, &parts.hint}) {
    text += *part + kSeparator;
  }
  return text;
}

Verdict verdict_from_text(const std::string& text) {
  std::istringstream stream(text);
  Verdict verdict{.kind = static_cast<VerdictKind>(stream.get())};
  auto& parts = verdict.parts;
  for (auto* part : {&parts.what, &parts.expected, &parts.got, &parts.where, &parts.hint}) {
    std::getline(stream, *part, kSeparator);
  }
  return verdict;
}

}  // namespace lockstep::detail
