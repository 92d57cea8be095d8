#include "launch/remote_launcher.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/option_type.h>

#include "launch/orphans.h"
#include "launch/posix.h"
#include "launch/supervisor.h"

namespace lockstep::launch {
namespace {

constexpr std::string_view kOrderTitle = "lockstep-order ";
constexpr std::size_t kLongestOrderLine = 40;
constexpr int kMaxOrderBytes = 1 << 26;

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

// Reads byte by byte, since what follows the payload is read by others.
std::string read_first_line(int fd) {
  std::string line, letter(1, '\0');
  while (line.size() < kLongestOrderLine) {
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

std::string encode(const RemoteCommandPayload& payload) {
  std::string bytes;
  const auto add = [&](const std::string& text) { bytes.append(text).push_back('\0'); };
  add(payload.version);
  add(payload.directory);
  add(std::to_string(payload.variables.size()));
  for (const auto& [name, value] : payload.variables) add(name + "=" + value);
  for (const auto& argument : payload.arguments) add(argument);
  return std::string(kOrderTitle) + std::to_string(bytes.size()) + "\n" + bytes;
}

RemoteCommandPayload decode_payload(std::string_view bytes) {
  constexpr std::size_t kFixed = 3;
  const auto texts = split_at_zeros(bytes);
  if (texts.size() < kFixed) refuse("too few texts");
  const auto variables = OptionType<int>::parse(texts[2]);
  if (!variables || *variables < 0 || texts.size() - kFixed < static_cast<std::size_t>(*variables))
    refuse("too few variables");
  RemoteCommandPayload payload{.version = texts[0], .directory = texts[1]};
  const auto arguments = texts.begin() + kFixed + *variables;
  for (auto text = texts.begin() + kFixed; text != arguments; ++text) {
    const auto equals = text->find('=');
    if (equals == std::string::npos || equals == 0) refuse("a variable without a name");
    payload.variables[text->substr(0, equals)] = text->substr(equals + 1);
  }
  payload.arguments.assign(arguments, texts.end());
  return payload;
}

RemoteCommandPayload read_payload(int fd) {
  const auto line = read_first_line(fd);
  const auto size = OptionType<int>::parse(line.substr(std::min(line.size(), kOrderTitle.size())));
  if (!line.starts_with(kOrderTitle) || !size || *size < 0 || *size > kMaxOrderBytes) refuse("another text");
  std::string bytes(static_cast<std::size_t>(*size), '\0');
  read_exactly(fd, bytes);
  return decode_payload(bytes);
}

namespace {

// The title begins with a control character that no program prints by chance.
constexpr std::string_view kMessageTitle = "\x1elockstep-node ";
constexpr std::string_view kReady = "ready";
constexpr std::string_view kFailure = "failure";

std::string_view next_word(std::string_view& text) {
  const auto word = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(text.size(), word.size() + 1));
  return word;
}

}  // namespace

std::string encode(const NodeReport& message) {
  if (message.is_ready) return std::string(kMessageTitle) + std::string(kReady) + "\n";
  return std::string(kMessageTitle) + std::string(kFailure) + " " +
         std::to_string(static_cast<int>(message.blame)) + " " + std::to_string(message.exit_code) + " " +
         message.cause + "\n";
}

std::optional<NodeReport> decode_message(std::string_view line) {
  if (!line.starts_with(kMessageTitle)) return std::nullopt;
  line.remove_prefix(kMessageTitle.size());
  if (line.ends_with('\n')) line.remove_suffix(1);
  const auto kind = next_word(line);
  if (kind == kReady) return NodeReport{.is_ready = true};
  const auto blame = OptionType<int>::parse(next_word(line)), code = OptionType<int>::parse(next_word(line));
  if (kind != kFailure || !blame || !code || *blame < 0 || *blame > static_cast<int>(Blame::kSignal))
    return std::nullopt;
  return NodeReport{.blame = static_cast<Blame>(*blame), .exit_code = *code, .cause = std::string(line)};
}

namespace {

constexpr std::size_t kLongestStarterLine = 100;

bool is_readable(int fd) {
  pollfd watched{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&watched, 1, 0) > 0;
}

[[noreturn]] void end_all() {
  constexpr std::string_view kText =
      "lockstep: stdin has ended, to which this run is tied: all ranks are killed\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
  kill_descendants();
  ::_exit(kExitSignalled + SIGKILL);
}

}  // namespace

StarterLink::StarterLink() : stdin_(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)) {
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!stdin_ || !nothing || ::dup2(nothing.get(), STDIN_FILENO) < 0) throw_errno("cannot watch stdin");
}

void StarterLink::add_to(std::vector<pollfd>& watched) const {
  watched.push_back({.fd = stdin_.get(), .events = POLLIN, .revents = 0});
}

void StarterLink::look() {
  std::array<char, 256> buffer;
  while (is_readable(stdin_.get())) {
    const auto count = ::read(stdin_.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) end_all();
    begun_.append(buffer.data(), static_cast<std::size_t>(count));
    for (auto end = begun_.find('\n'); end != std::string::npos; end = begun_.find('\n')) {
      obey(std::string_view(begun_).substr(0, end));
      begun_.erase(0, end + 1);
    }
    if (begun_.size() > kLongestStarterLine) begun_.clear();
  }
}

void StarterLink::obey(std::string_view line) const {
  if (!line.starts_with(kSignal)) return;
  const auto signal = OptionType<int>::parse(line.substr(kSignal.size()));
  if (signal && *signal > 0 && *signal < NSIG) ::kill(::getpid(), *signal);
}

void StarterLink::on_failure(const Failure& failure, Blame blame, int exit_code, const std::string&) {
  if (may_restart_) return;
  const auto cause = failure.cause.substr(0, failure.cause.find('\n'));
  news_ += encode(NodeReport{.blame = blame, .exit_code = exit_code, .cause = cause});
}

}  // namespace lockstep::launch
