// A value or the reason why there is none, for outcomes that the caller handles on the spot.
// API-compatible with the part of C++23's std::expected that we use; C++20 has none.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace lockstep {

/// The failed side of an Expected: `return Unexpected{"no such key"};`
template <class E = std::string>
struct Unexpected {
  E value;  ///< what went wrong
};
/// `Unexpected(reason)` holds what it is given.
template <class E>
Unexpected(E) -> Unexpected<E>;
/// `Unexpected("text")` holds a std::string.
Unexpected(const char*)->Unexpected<std::string>;

/// Holds a T, or an E that says why there is none. T may be void.
template <class T, class E = std::string>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  template <class G>
  Expected(Unexpected<G> failure) : state_(std::in_place_index<1>, std::move(failure.value)) {}

  /// Whether there is a value, and no error.
  bool has_value() const { return state_.index() == 0; }
  /// The same as has_value().
  explicit operator bool() const { return has_value(); }
  /// @throws std::bad_variant_access when there is no value
  T& value() { return std::get<0>(state_); }
  /// The value.
  /// @throws std::bad_variant_access where there is an error
  const T& value() const { return std::get<0>(state_); }
  /// The value, which must be there.
  T& operator*() { return *std::get_if<0>(&state_); }
  /// The value, which must be there.
  const T& operator*() const { return *std::get_if<0>(&state_); }
  /// The value, which must be there.
  T* operator->() { return std::get_if<0>(&state_); }
  /// The value, which must be there.
  const T* operator->() const { return std::get_if<0>(&state_); }
  /// The error.
  /// @throws std::bad_variant_access where there is a value
  const E& error() const { return std::get<1>(state_); }
  /// The value, or `other` where there is an error.
  T value_or(T other) const { return has_value() ? **this : std::move(other); }

 private:
  std::variant<T, E> state_;
};

/// Nothing, or why it went wrong.
template <class E>
class [[nodiscard]] Expected<void, E> {
 public:
  Expected() = default;
  template <class G>
  Expected(Unexpected<G> failure) : state_(std::in_place_index<1>, std::move(failure.value)) {}

  /// Whether it went well.
  bool has_value() const { return state_.index() == 0; }
  /// The same as has_value().
  explicit operator bool() const { return has_value(); }
  /// The error.
  /// @throws std::bad_variant_access where it went well
  const E& error() const { return std::get<1>(state_); }

 private:
  std::variant<std::monostate, E> state_;
};

}  // namespace lockstep
