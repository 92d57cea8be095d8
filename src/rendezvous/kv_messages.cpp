#include "rendezvous/kv_messages.h"

#include <cstring>

namespace lockstep::rendezvous {

KvWriter& KvWriter::number(std::int64_t value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  return *this;
}

KvWriter& KvWriter::text(std::string_view value) {
  number(static_cast<std::int64_t>(value.size()));
  bytes_ += value;
  return *this;
}

std::string_view KvReader::take(std::size_t bytes) {
  if (bytes > rest_.size()) {
    is_sound_ = false;
    rest_ = {};
    return {};
  }
  const auto taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

char KvReader::kind() {
  const auto byte = take(1);
  return byte.empty() ? '\0' : byte.front();
}

std::int64_t KvReader::number() {
  std::int64_t value = 0;
  const auto bytes = take(sizeof value);
  if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// A negative length becomes a very large one, which take() refuses.
std::string_view KvReader::text() { return take(static_cast<std::size_t>(number())); }

}  // namespace lockstep::rendezvous
