#include <lockstep/base/shell_word.h>

#include <algorithm>
#include <cctype>

namespace lockstep {
namespace {

bool is_plain(unsigned char letter) {
  return std::isalnum(letter) != 0 ||
         std::string_view("/._-+,:@").find(static_cast<char>(letter)) != std::string_view::npos;
}

}  // namespace

std::string shell_word(std::string_view word) {
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return std::string(word);
  std::string text = "'";
  for (const char letter : word)
    text += letter == '\'' || letter == '\\' ? std::string("'\\") + letter + "'" : std::string(1, letter);
  return text + "'";
}

}  // namespace lockstep
