#include "tokenizer.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_map>

namespace lm {

namespace {

using Token = Tokenizer::Token;
using Pair = Tokenizer::Pair;

enum class CharKind { kSpace, kDigit, kLetter, kOther };

CharKind kind_of(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte >= 0x80 || std::isalpha(byte)) return CharKind::kLetter;  // UTF-8 beyond ASCII: taken for letters
  if (std::isdigit(byte)) return CharKind::kDigit;
  return std::isspace(byte) ? CharKind::kSpace : CharKind::kOther;
}

// Where the first word of `text` ends: characters of one kind, with the space before them. Pairs do not reach
// over it, so a text is learnt, and encoded, by the words that it has.
std::size_t word_length(std::string_view text) {
  std::size_t end = text.size() > 1 && text[0] == ' ' ? 1 : 0;
  const auto kind = kind_of(text[end]);
  while (end < text.size() && kind_of(text[end]) == kind) ++end;
  return end;
}

template <class Visit>
void for_each_word(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const auto length = word_length(text);
    visit(text.substr(0, length));
    text.remove_prefix(length);
  }
}

std::vector<Token> bytes_of(std::string_view word) {
  std::vector<Token> tokens;
  for (const char c : word) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

void replace(std::vector<Token>& tokens, const Pair& pair, Token merged) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i, ++size) {
    const bool is_pair = i + 1 < tokens.size() && Pair(tokens[i], tokens[i + 1]) == pair;
    tokens[size] = is_pair ? merged : tokens[i];
    if (is_pair) ++i;
  }
  tokens.resize(size);
}

// How often each pair occurs in a text, kept up to date while pairs become tokens.
class PairCounts {
 public:
  explicit PairCounts(std::string_view text) {
    std::map<std::string_view, std::int64_t> words;
    for_each_word(text, [&](std::string_view word) { ++words[word]; });
    for (const auto& [word, times] : words) {
      words_.push_back({bytes_of(word), times});
      count(words_.size() - 1, times);
    }
  }

  /// The pair that occurs most often, of several the smallest; none that occurs but once.
  const Pair* most_frequent() const {
    const auto best = std::ranges::max_element(uses_, {}, [](const auto& use) { return use.second.times; });
    return best == uses_.end() || best->second.times < 2 ? nullptr : &best->first;
  }

  void merge(const Pair pair, Token merged) {
    const auto words = uses_.at(pair).words;
    for (const auto word : words) {
      count(word, -words_[word].times);
      replace(words_[word].tokens, pair, merged);
      count(word, words_[word].times);
    }
  }

 private:
  struct Word {
    std::vector<Token> tokens;
    std::int64_t times;
  };
  struct Use {
    std::int64_t times = 0;
    std::set<std::size_t> words = {};  // with the pair, and some that had it
  };

  void count(std::size_t word, std::int64_t times) {
    const auto& tokens = words_[word].tokens;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto use = uses_.try_emplace({tokens[i], tokens[i + 1]}).first;
      use->second.times += times;
      use->second.words.insert(word);
      if (use->second.times == 0) uses_.erase(use);
    }
  }

  std::vector<Word> words_;
  std::map<Pair, Use> uses_;
};

}  // namespace

Tokenizer::Tokenizer(std::string_view text, std::int64_t vocab_size) {
  for (int byte = 0; byte < kBytes; ++byte) bytes_.emplace_back(1, static_cast<char>(byte));
  if (vocab_size <= kBytes) return;
  PairCounts counts(text);
  while (size() < vocab_size) {
    const auto* pair = counts.most_frequent();
    if (pair == nullptr) return;
    counts.merge(*pair, add(*pair));
  }
}

Tokenizer::Token Tokenizer::add(const Pair& pair) {
  const auto token = static_cast<Token>(bytes_.size());
  merges_.emplace(pair, token);
  bytes_.push_back(bytes_[static_cast<std::size_t>(pair.first)] +
                   bytes_[static_cast<std::size_t>(pair.second)]);
  return token;
}

std::vector<Token> Tokenizer::encode_word(std::string_view word) const {
  auto tokens = bytes_of(word);
  while (true) {
    auto first = merges_.end();
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto merge = merges_.find({tokens[i], tokens[i + 1]});
      if (merge != merges_.end() && (first == merges_.end() || merge->second < first->second)) first = merge;
    }
    if (first == merges_.end()) return tokens;
    replace(tokens, first->first, first->second);
  }
}

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  std::unordered_map<std::string_view, std::vector<Token>> known;
  std::vector<Token> tokens;
  for_each_word(text, [&](std::string_view word) {
    const auto [entry, is_new] = known.try_emplace(word);
    if (is_new) entry->second = encode_word(word);
    tokens.insert(tokens.end(), entry->second.begin(), entry->second.end());
  });
  return tokens;
}

std::string Tokenizer::decode(std::span<const std::int64_t> tokens) const {
  std::string text;
  for (const auto token : tokens) {
    if (token >= 0 && token < size()) text += bytes_[static_cast<std::size_t>(token)];
  }
  return text;
}

}  // namespace lm
