// What is kept of values that are not read.
#include "formats/in_quotes.h"
#include "formats/pickle_objects.h"

namespace lockstep::pickle::detail {
namespace {

constexpr std::size_t kMaxText = 200;   // names come from anywhere, and may be used again and again
constexpr std::size_t kMaxDigits = 64;  // bytes of an integer that is written out

/// The bytes of an integer below zero become those of its absolute value.
void negate(std::vector<unsigned>& bytes) {
  unsigned carry = 1;
  for (auto& byte : bytes) {
    byte = (~byte & 0xFF) + carry;
    carry = byte >> 8;
    byte &= 0xFF;
  }
}

std::string decimal(std::vector<unsigned> bytes) {
  const bool is_negative = bytes.back() >= 0x80;
  if (is_negative) negate(bytes);
  std::string digits;
  while (!bytes.empty()) {
    unsigned rest = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) {
      const unsigned part = rest << 8 | bytes[i];
      bytes[i] = part / 10;
      rest = part % 10;
    }
    digits.insert(digits.begin(), static_cast<char>('0' + rest));
    while (!bytes.empty() && bytes.back() == 0) bytes.pop_back();
  }
  return (is_negative ? "-" : "") + digits;
}

}  // namespace

std::string foreign_name(std::string_view name) {
  auto text = lockstep::detail::printable(name.substr(0, kMaxText));
  return name.size() > kMaxText ? text + "..." : text;
}

std::string foreign_call(std::string_view name, const Value& arguments) {
  const auto* tuple = arguments.as<Tuple>();
  const auto* of = tuple == nullptr || tuple->items.empty() ? nullptr : tuple->items[0].as<Foreign>();
  const bool fits = of != nullptr && name.size() + of->what.size() < kMaxText;
  return std::string(name) + "(" + (fits ? of->what + ", " : "") + "...)";
}

Value integer_of(std::span<const std::byte> bytes) {
  if (bytes.size() <= 8) {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) bits |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
    const int unused = bytes.empty() ? 0 : 64 - 8 * static_cast<int>(bytes.size());
    return static_cast<std::int64_t>(bits << unused) >> unused;  // extends the sign
  }
  if (bytes.size() > kMaxDigits)
    return Foreign{"an integer of " + std::to_string(8 * bytes.size()) + " bits"};
  std::vector<unsigned> values;
  for (const auto byte : bytes) values.push_back(std::to_integer<unsigned>(byte));
  return Foreign{"the integer " + decimal(std::move(values)) + ", which has more than 64 bits"};
}

}  // namespace lockstep::pickle::detail
