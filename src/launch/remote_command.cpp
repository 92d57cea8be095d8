#include "launch/remote_command.h"

#include <algorithm>
#include <cctype>

namespace lockstep::launch {
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

std::vector<std::string> remote_command(const RemoteShell& shell, const std::string& host,
                                        const std::string& program) {
  std::vector<std::string> words{shell.program};
  words.insert(words.end(), shell.arguments.begin(), shell.arguments.end());
  for (const char* option :
       {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=10", "ServerAliveCountMax=3"})
    words.insert(words.end(), {"-o", option});
  if (shell.port != 0) words.insert(words.end(), {"-p", std::to_string(shell.port)});
  words.insert(words.end(), {host, "exec " + shell_word(program) + " node"});
  return words;
}

}  // namespace lockstep::launch
