#include "rendezvous/frames.h"

#include <cstdint>
#include <cstring>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <lockstep/base/error.h>

namespace lockstep::rendezvous {
namespace {

constexpr std::size_t kLengthBytes = 4;

std::size_t length_at(std::string_view bytes) {
  std::size_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  return length;
}

}  // namespace

std::string to_frame(std::string_view payload) {
  if (payload.size() > kMostFrameBytes)
    throw CommError("rendezvous", {.what = "a message is too long",
                                   .expected = "at most " + std::to_string(kMostFrameBytes) + " bytes",
                                   .got = std::to_string(payload.size())});
  std::string frame;
  frame.reserve(kLengthBytes + payload.size());
  for (std::size_t i = 0; i < kLengthBytes; ++i) frame += static_cast<char>(payload.size() >> (8 * i) & 0xff);
  return frame.append(payload);
}

Expected<std::optional<std::string>> FrameBuffer::next() {
  const auto rest = std::string_view(bytes_).substr(begin_);
  if (rest.size() < kLengthBytes) return std::optional<std::string>();
  const auto length = length_at(rest);
  if (length > kMostFrameBytes) return Unexpected{"a frame of " + std::to_string(length) + " bytes"};
  if (rest.size() < kLengthBytes + length) return std::optional<std::string>();
  std::optional<std::string> payload(rest.substr(kLengthBytes, length));
  begin_ += kLengthBytes + length;
  if (begin_ == bytes_.size() || begin_ > (1U << 16)) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  return payload;
}

namespace {

template <class Byte>
const unsigned char* bytes_of(const Byte* text) {
  return reinterpret_cast<const unsigned char*>(text);
}

}  // namespace

std::string reason(std::string_view text) {
  constexpr std::size_t kMost = 255;
  const auto shown = text.substr(0, kMost);
  return std::string(1, static_cast<char>(shown.size())).append(shown);
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1)
    throw CommError("rendezvous", {.what = "the system gives no random numbers"});
  return bytes;
}

std::string proof(std::string_view key, Side side, std::string_view servers_challenge,
                  std::string_view clients_challenge) {
  std::string text(1, static_cast<char>(side));
  text.append(servers_challenge).append(clients_challenge);
  std::string digest(kProofBytes, '\0');
  unsigned length = kProofBytes;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(digest.data()), &length) == nullptr)
    throw CommError("rendezvous", {.what = "OpenSSL cannot compute HMAC-SHA256"});
  return digest;
}

bool same_secret(std::string_view one, std::string_view other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

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
