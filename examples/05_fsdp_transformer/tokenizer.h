// Byte pair encoding: bytes are tokens, and so are pairs of tokens that are often neighbours.
// Sennrich, Haddow, Birch, arXiv 1508.07909; on bytes, as GPT-2 does it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lm {

class Tokenizer {
 public:
  using Token = std::int32_t;
  using Pair = std::pair<Token, Token>;

  static constexpr std::int64_t kBytes = 256;  ///< tokens that there are before anything is learnt

  /// Learns from `text` which pairs become tokens, until there are `vocab_size` tokens or no pair occurs
  /// twice. The same text gives the same tokens on every machine. With a `vocab_size` of 256 a token is a
  /// byte.
  Tokenizer(std::string_view text, std::int64_t vocab_size);

  /// All of `text`: nothing is unknown.
  std::vector<Token> encode(std::string_view text) const;

  /// Gives the text back that encode() got. Tokens that were never learnt stand for nothing.
  std::string decode(std::span<const std::int64_t> tokens) const;

  /// Tokens that there are.
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }

 private:
  Token add(const Pair& pair);
  std::vector<Token> encode_word(std::string_view word) const;

  std::vector<std::string> bytes_;  // by token
  std::map<Pair, Token> merges_;    // smaller tokens were learnt earlier, and go first
};

}  // namespace lm
