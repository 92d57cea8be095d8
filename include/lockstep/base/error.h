// The one family of exceptions, and the hints that they give about mistyped names. `catch (const
// std::exception&)` is enough for a user; catching a subclass tells what can be done about it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// The sentences an error is made of. Only `what` is obligatory; empty parts are left out.
struct ErrorParts {
  std::string what = {};      ///< what went wrong, with the key, file or tensor it is about
  std::string expected = {};  ///< what would have been accepted
  std::string got = {};       ///< what was there
  std::string where = {};     ///< file:line:column, or rank, collective and sequence number
  std::string hint = {};      ///< what the user can do
};

/// Base of all errors of lockstep. Text: `[module] what; expected ...; got ...; where; hint`.
class LOCKSTEP_API Error : public std::runtime_error {
 public:
  /// `module` is the part of lockstep that speaks, as "comm".
  Error(std::string_view module, const ErrorParts& parts);
  ~Error() override;
};

/// A flag, key, environment variable or argument is wrong. Programs exit with 2.
class LOCKSTEP_API ConfigError : public Error {
 public:
  using Error::Error;
  ~ConfigError() override;
};

/// A data file or data set cannot be used.
class LOCKSTEP_API DataError : public Error {
 public:
  using Error::Error;
  ~DataError() override;
};

/// A file or folder cannot be read or written.
class LOCKSTEP_API IoError : public Error {
 public:
  using Error::Error;
  ~IoError() override;
};

/// A checkpoint or weights file is damaged, incomplete or of another model.
class LOCKSTEP_API CheckpointError : public Error {
 public:
  using Error::Error;
  ~CheckpointError() override;
};

/// A collective failed for a reason that is none of the following ones.
class LOCKSTEP_API CommError : public Error {
 public:
  /// `ranks` are those that the error is about.
  CommError(std::string_view module, const ErrorParts& parts, std::vector<int> ranks = {});
  ~CommError() override;

  /// The ranks that the error is about (lost, absent, in disagreement), by their number in the job; empty
  /// where they are not known.
  const std::vector<int>& ranks() const { return *ranks_; }

 private:
  std::shared_ptr<const std::vector<int>> ranks_;  // shared, because copying an exception must not throw
};

/// Another rank went away (died, or closed its connection).
class LOCKSTEP_API PeerLost : public CommError {
 public:
  using CommError::CommError;
  ~PeerLost() override;
};

/// A deadline passed while waiting for another rank.
class LOCKSTEP_API Timeout : public CommError {
 public:
  using CommError::CommError;
  ~Timeout() override;
};

/// The ranks did not call the same collective with the same shape and dtype.
class LOCKSTEP_API CollectiveMismatch : public CommError {
 public:
  using CommError::CommError;
  ~CollectiveMismatch() override;
};

/// The name in `known` that `name` is meant to be; case does not count and `-` equals `_`. It is, in this
/// order: one that a single change makes of it (insert, delete, replace, swap of neighbours); the shortest
/// that begins with `name`, of which at least three letters of the last part are given, and goes on without a
/// dot; the one that the fewest changes make, ties going to the first. Nothing when more than a third of the
/// letters, and more than two, would have to change.
LOCKSTEP_API std::optional<std::string> nearest_name(std::string_view name,
                                                     std::span<const std::string> known);

/// As nearest_name, for dotted keys: when no whole key is near, keys are compared by their last
/// part, so that `max_epochs` finds `trainer.max_epochs`.
LOCKSTEP_API std::optional<std::string> nearest_key(std::string_view key, std::span<const std::string> known);

/// `did you mean NAME?`, or an empty text without a name. Meant for ErrorParts::hint.
LOCKSTEP_API std::string did_you_mean(const std::optional<std::string>& name, std::string_view prefix = {});

}  // namespace lockstep
