// A setting that a configuration of DeepSpeed may leave to whoever runs the training.
#pragma once

#include <utility>

#include <lockstep/base/option_codec.h>

namespace lockstep::deepspeed {

/// The word "auto" as it is read, before it is known what it stands for.
struct AutoWord {};

/// A T, or "auto": to be filled from the Trainer, the loader or the model. While it is "auto", `value` is
/// DeepSpeed's default.
template <class T>
struct AutoOr {
  T value = {};          ///< what the file says, or the default
  bool is_auto = false;  ///< whether the file says "auto"

  AutoOr() = default;
  AutoOr(T given) : value(std::move(given)) {}  // so that code sets it as if it were a T
  explicit AutoOr(AutoWord) : is_auto(true), has_value_(false) {}
  AutoOr(const AutoOr&) = default;
  AutoOr(AutoOr&&) = default;
  ~AutoOr() = default;

  /// An "auto" that was read leaves `value` as it is: the default.
  AutoOr& operator=(AutoOr other) {
    if (other.has_value_) value = std::move(other.value);
    is_auto = other.is_auto;
    return *this;
  }

  /// Takes `filling` if it is "auto".
  void fill(T filling) {
    if (is_auto) *this = AutoOr(std::move(filling));
  }

  bool operator==(const AutoOr&) const = default;

 private:
  bool has_value_ = true;
};

}  // namespace lockstep::deepspeed

namespace lockstep::detail {

/// "auto", or what OptionCodec<T> reads.
template <class T>
struct OptionCodec<deepspeed::AutoOr<T>> {
  using Value = deepspeed::AutoOr<T>;

  static Expected<Value, OptionFailure> read(const OptionText& text, const OptionRange& range) {
    if (text.kind == OptionText::Kind::kScalar && text.text == "auto") {
      return Value(deepspeed::AutoWord{});
    }
    auto value = OptionCodec<T>::read(text, range);
    if (!value) return Unexpected{value.error()};
    return Value(std::move(*value));
  }

  static Expected<void, OptionFailure> check(const Value& value, const OptionRange& range) {
    if (value.is_auto) return {};
    return OptionCodec<T>::check(value.value, range);
  }

  static std::string print(const Value& value) {
    return value.is_auto ? "auto" : OptionCodec<T>::print(value.value);
  }

  static OptionTypeInfo info() {
    auto info = OptionCodec<T>::info();
    info.type += " or auto";
    info.accepted += " or \"auto\"";
    info.names.emplace_back("auto");
    return info;
  }
};

}  // namespace lockstep::detail
