// Why a roll call failed, in a form that fits into a store.
#pragma once

#include <string>

#include <lockstep/base/error.h>

namespace lockstep::detail {

/// Which error it is.
enum class VerdictKind : char { kCommError = 'C', kMismatch = 'M', kTimeout = 'T' };

/// What all ranks throw.
struct Verdict {
  VerdictKind kind = VerdictKind::kCommError;
  ErrorParts parts = {};

  [[noreturn]] void raise() const;
};

/// Text without loss. from_text(to_text(v)) is v.
std::string to_text(const Verdict& verdict);
Verdict verdict_from_text(const std::string& text);

}  // namespace lockstep::detail
