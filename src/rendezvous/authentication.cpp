#include "rendezvous/authentication.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <lockstep/base/error.h>

namespace lockstep::rendezvous {
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

}  // namespace lockstep::rendezvous
