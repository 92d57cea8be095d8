#include "launch/order.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <lockstep/base/error.h>
#include <lockstep/base/option_type.h>

namespace lockstep::launch {
namespace {

constexpr std::string_view kTitle = "lockstep-order ";
constexpr std::size_t kMaxLine = 40;
constexpr int kMaxBytes = 1 << 26;

[[noreturn]] void refuse(const std::string& got) {
  throw Error("launch", {.what = "cannot read from stdin what this host is to do",
                         .expected = "what lockstep run --hostfile sends",
                         .got = got});
}

void read_exactly(int fd, std::string& bytes) {
  for (std::size_t begin = 0; begin < bytes.size();) {
    const auto count = ::read(fd, bytes.data() + begin, bytes.size() - begin);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) refuse("its end");
    begin += static_cast<std::size_t>(count);
  }
}

// Byte by byte: what follows an order is for others.
std::string read_first_line(int fd) {
  std::string line, letter(1, '\0');
  while (line.size() < kMaxLine) {
    read_exactly(fd, letter);
    if (letter == "\n") return line;
    line += letter;
  }
  refuse("another text");
}

std::vector<std::string> split_at_zeros(std::string_view bytes) {
  std::vector<std::string> texts;
  while (!bytes.empty()) {
    const auto end = bytes.find('\0');
    if (end == std::string_view::npos) refuse("a text without its end");
    texts.emplace_back(bytes.substr(0, end));
    bytes.remove_prefix(end + 1);
  }
  return texts;
}

}  // namespace

std::string encode(const Order& order) {
  std::string bytes;
  const auto add = [&](const std::string& text) { bytes.append(text).push_back('\0'); };
  add(order.version);
  add(order.directory);
  add(std::to_string(order.variables.size()));
  for (const auto& [name, value] : order.variables) add(name + "=" + value);
  for (const auto& argument : order.arguments) add(argument);
  return std::string(kTitle) + std::to_string(bytes.size()) + "\n" + bytes;
}

Order decode_order(std::string_view bytes) {
  constexpr std::size_t kFixed = 3;
  const auto texts = split_at_zeros(bytes);
  if (texts.size() < kFixed) refuse("too few texts");
  const auto variables = OptionType<int>::parse(texts[2]);
  if (!variables || *variables < 0 || texts.size() - kFixed < static_cast<std::size_t>(*variables))
    refuse("too few variables");
  Order order{.version = texts[0], .directory = texts[1]};
  const auto arguments = texts.begin() + kFixed + *variables;
  for (auto text = texts.begin() + kFixed; text != arguments; ++text) {
    const auto equals = text->find('=');
    if (equals == std::string::npos || equals == 0) refuse("a variable without a name");
    order.variables[text->substr(0, equals)] = text->substr(equals + 1);
  }
  order.arguments.assign(arguments, texts.end());
  return order;
}

Order read_order(int fd) {
  const auto line = read_first_line(fd);
  const auto size = OptionType<int>::parse(line.substr(std::min(line.size(), kTitle.size())));
  if (!line.starts_with(kTitle) || !size || *size < 0 || *size > kMaxBytes) refuse("another text");
  std::string bytes(static_cast<std::size_t>(*size), '\0');
  read_exactly(fd, bytes);
  return decode_order(bytes);
}

}  // namespace lockstep::launch
