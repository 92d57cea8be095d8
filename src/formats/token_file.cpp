#include <lockstep/formats/token_file.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>

#include <lockstep/base/error.h>

#include "formats/byte_reader.h"
#include "formats/file_text.h"

namespace lockstep {
namespace {

constexpr std::size_t kHeaderBytes = 256 * sizeof(std::int32_t);

struct HeaderKind {
  std::int32_t magic;
  std::int32_t version;
  TokenDtype dtype;
};
constexpr std::array kHeaderKinds{HeaderKind{20240520, 1, TokenDtype::kUint16},   // GPT-2
                                  HeaderKind{20240801, 7, TokenDtype::kUint32}};  // Llama 3

std::size_t bytes_of(TokenDtype dtype) { return dtype == TokenDtype::kUint16 ? 2 : 4; }

const HeaderKind* kind_of(std::int32_t magic) {
  for (const auto& kind : kHeaderKinds) {
    if (kind.magic == magic) return &kind;
  }
  return nullptr;
}

// Formats whose first bytes no tokens are likely to be; two bytes are one token, which may be any.
std::optional<detail::ForeignFile> other_format(std::span<const std::byte> file) {
  constexpr std::array kMarks{"\x93NUMPY",   "version https://git-lfs",
                              "<!DOCTYPE",   "<!doctype",
                              "<html",       "<HTML",
                              "PK\x03\x04",  "\x1f\x8b\x08",
                              "\xfd\x37zXZ", "BZh91AY",
                              "PAR1"};
  const std::string_view start(reinterpret_cast<const char*>(file.data()),
                               std::min(file.size(), detail::kForeignStartBytes));
  const auto is_marked = [&](const char* mark) { return start.starts_with(mark); };
  return std::ranges::any_of(kMarks, is_marked) ? detail::foreign_file(start) : std::nullopt;
}

Expected<TokenLayout> headless(std::size_t file_bytes, TokenDtype dtype) {
  if (file_bytes % bytes_of(dtype) == 0)
    return TokenLayout{.dtype = dtype, .count = static_cast<std::int64_t>(file_bytes / bytes_of(dtype))};
  return Unexpected{std::to_string(file_bytes) + " bytes, no whole number of " +
                    std::string(to_string(dtype))};
}

Expected<TokenLayout> behind_header(detail::ByteReader reader, std::size_t file_bytes,
                                    const HeaderKind& kind) {
  std::int32_t magic = 0;
  std::int32_t version = 0;
  std::int32_t count = 0;
  if (file_bytes < kHeaderBytes) return Unexpected{"cut short within its header"};
  reader.read(magic);
  reader.read(version);
  reader.read(count);
  if (version != kind.version) {
    return Unexpected{"version " + std::to_string(version) + " of the format, expected " +
                      std::to_string(kind.version)};
  }
  const std::size_t there = file_bytes - kHeaderBytes;
  if (count < 0 || there != static_cast<std::size_t>(count) * bytes_of(kind.dtype)) {
    return Unexpected{"a header that says " + std::to_string(count) + " tokens, but " +
                      std::to_string(there) + " bytes of " + std::string(to_string(kind.dtype))};
  }
  return TokenLayout{.dtype = kind.dtype, .offset = kHeaderBytes, .count = count};
}

MappedFile mapped(const std::filesystem::path& path) try {
  return MappedFile(path);
} catch (const IoError& error) {
  throw DataError("formats", {.what = "no tokens in '" + path.string() + "'", .got = error.what()});
}

template <class Token>
void widen(std::span<const std::byte> from, std::span<std::int64_t> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    Token token;
    std::memcpy(&token, from.data() + i * sizeof(Token), sizeof(Token));
    to[i] = token;
  }
}

}  // namespace

std::string_view to_string(TokenDtype dtype) { return dtype == TokenDtype::kUint16 ? "uint16" : "uint32"; }

Expected<TokenLayout> token_layout(std::span<const std::byte> file, std::optional<TokenDtype> dtype) {
  std::int32_t magic = 0;
  detail::ByteReader(file).read(magic);
  const auto* kind = kind_of(magic);
  const auto foreign = kind ? std::nullopt : other_format(file);
  if (foreign) return Unexpected{std::string(foreign->what) + ", of which no header is read"};
  if (!kind) return headless(file.size(), dtype.value_or(TokenDtype::kUint16));
  if (!dtype || *dtype == kind->dtype) return behind_header(detail::ByteReader(file), file.size(), *kind);
  return Unexpected{"a header that says " + std::string(to_string(kind->dtype)) + ", asked for " +
                    std::string(to_string(*dtype))};
}

TokenFile::TokenFile(const std::filesystem::path& path, std::optional<TokenDtype> dtype)
    : path_(path), file_(mapped(path)) {
  const auto layout = token_layout(file_.bytes(), dtype);
  if (!layout) {
    throw DataError("formats",
                    {.what = "'" + path.string() + "' is no file of tokens", .got = layout.error()});
  }
  layout_ = *layout;
}

void TokenFile::copy(std::int64_t begin, std::span<std::int64_t> tokens) const {
  const auto from =
      file_.bytes().subspan(layout_.offset + static_cast<std::size_t>(begin) * bytes_of(layout_.dtype),
                            tokens.size() * bytes_of(layout_.dtype));
  if (layout_.dtype == TokenDtype::kUint16) {
    widen<std::uint16_t>(from, tokens);
  } else {
    widen<std::uint32_t>(from, tokens);
  }
}

}  // namespace lockstep
