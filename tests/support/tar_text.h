// tar archives for tests, made byte by byte.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace lockstep::test {

/// A header of ustar and its content. `size`: what the header says, where that is not the content's.
inline std::string tar_member(std::string_view name, std::string_view content, char type = '0',
                              long long size = -1) {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, std::string_view text) { header.replace(at, text.size(), text); };
  const auto octal = [](unsigned long long value, int digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%0*llo", digits, value);
    return std::string(text);
  };
  put(0, name.substr(0, 100));
  put(100, "0000644");
  put(124, octal(size < 0 ? content.size() : static_cast<unsigned long long>(size), 11));
  put(156, std::string_view(&type, 1));
  put(257, std::string_view("ustar\00000", 8));
  put(148, "        ");
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, octal(sum, 6) + '\0');
  header += content;
  header.resize((header.size() + 511) / 512 * 512);
  return header;
}

/// The two empty blocks that end an archive.
inline std::string tar_end() { return std::string(1024, '\0'); }

}  // namespace lockstep::test
