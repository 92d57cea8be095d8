// Files of token numbers for language models: llm.c's, which have a header, and nanoGPT's, which have none.
// Sources: https://github.com/karpathy/llm.c (dev/data/data_common.py), https://github.com/karpathy/nanoGPT
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/formats/mapped_file.h>

namespace lockstep {

/// How a token is written, the lowest byte first.
enum class TokenDtype {
  kUint16,  ///< two bytes
  kUint32   ///< four bytes
};

/// "uint16" or "uint32".
LOCKSTEP_API std::string_view to_string(TokenDtype dtype);

/// Where the tokens of a file are.
struct TokenLayout {
  TokenDtype dtype = TokenDtype::kUint16;  ///< what a token is
  std::size_t offset = 0;                  ///< of the first token, in bytes
  std::int64_t count = 0;                  ///< tokens

  bool operator==(const TokenLayout&) const = default;
};

/// Tells the layout of the bytes of a whole file. A header is known by its magic number and says the type;
/// a file without one holds tokens only, of type `dtype`, uint16 if none is given. Never throws for bad
/// input; the reason says what is wrong.
LOCKSTEP_API Expected<TokenLayout> token_layout(std::span<const std::byte> file,
                                                std::optional<TokenDtype> dtype = {});

/// A file of tokens, mapped into memory: opening it reads nothing but its head. Thread-safe.
class LOCKSTEP_API TokenFile {
 public:
  /// @throws DataError naming the file: not readable, a version that is not known, another number of tokens
  ///     than its header says, tokens of another type than `dtype`
  explicit TokenFile(const std::filesystem::path& path, std::optional<TokenDtype> dtype = {});

  /// Tokens in the file.
  std::int64_t size() const { return layout_.count; }
  /// What a token is.
  TokenDtype dtype() const { return layout_.dtype; }
  /// The file.
  const std::filesystem::path& path() const { return path_; }

  /// Copies the tokens from number `begin` on into `tokens`; all of them must be there.
  void copy(std::int64_t begin, std::span<std::int64_t> tokens) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  TokenLayout layout_;
};

}  // namespace lockstep
