#include "launch/output_relay.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>

namespace lockstep::launch {
namespace {

bool is_ready(int fd, int timeout_ms) {
  pollfd watched{.fd = fd, .events = POLLOUT, .revents = 0};
  return ::poll(&watched, 1, timeout_ms) > 0;
}

}  // namespace

void Outlet::add_to(std::vector<pollfd>& watched) const {
  if (!queue_.empty()) watched.push_back({.fd = fd_, .events = POLLOUT, .revents = 0});
}

// A pipe that poll() reports as ready accepts PIPE_BUF bytes without blocking.
void Outlet::flush() {
  std::size_t written = 0;
  while (written < queue_.size() && is_ready(fd_, 0)) {
    const auto size = std::min<std::size_t>(queue_.size() - written, PIPE_BUF);
    const auto count = ::write(fd_, queue_.data() + written, size);
    if (count > 0) written += static_cast<std::size_t>(count);
    if (count >= 0 || errno == EINTR) continue;
    if (errno == EAGAIN) break;
    failure_ = errno;
    written = queue_.size();
  }
  queue_.erase(0, written);
}

void Outlet::flush_within(std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  flush();
  while (!queue_.empty() && std::chrono::steady_clock::now() < end) {
    is_ready(fd_, 10);
    flush();
  }
}

namespace {

constexpr std::size_t kLongestOutputLine = std::size_t{16} << 20;
constexpr std::size_t kMostHeld = std::size_t{1} << 20;
constexpr itimerspec kLineTimeout{.it_interval = {}, .it_value = {.tv_sec = 1, .tv_nsec = 0}};

bool is_ended(std::string_view part) { return part.ends_with('\n') || part.ends_with('\r'); }

}  // namespace

LineOutlet::LineOutlet(int fd)
    : out_(fd), timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!timer_) throw_errno("cannot make a timer for the output of ranks");
}

void LineOutlet::add(Writer writer, std::string_view part, bool ends) {
  if (!is_free_for(writer)) {
    held_ += part;
    if (!is_ended(part)) held_ += '\n';
    return;
  }
  put(part);
  if (ends) return release();
  owner_ = writer;
  length_ += part.size();
  if (length_ > kLongestOutputLine) return cut();
  start_timer();
}

void LineOutlet::say(std::string_view line) {
  cut();
  put(line);
  out_.flush();
}

void LineOutlet::put(std::string_view part) {
  if (part.empty()) return;
  if (lacks_end_ && owner_ == nullptr) out_.add("\n");
  out_.add(part);
  lacks_end_ = !is_ended(part);
}

bool LineOutlet::is_full_for(Writer writer) const {
  return out_.is_full() || (!is_free_for(writer) && held_.size() > kMostHeld);
}

void LineOutlet::add_to(std::vector<pollfd>& watched) const {
  out_.add_to(watched);
  if (owner_ != nullptr && !held_.empty())
    watched.push_back({.fd = timer_.get(), .events = POLLIN, .revents = 0});
}

void LineOutlet::look() {
  std::uint64_t ticks = 0;
  const bool others_wait = owner_ != nullptr && !held_.empty();
  if (others_wait && ::read(timer_.get(), &ticks, sizeof ticks) > 0) cut();
  out_.flush();
}

void LineOutlet::cut() {
  if (owner_ == nullptr) return;
  put("\n");
  release();
}

void LineOutlet::release() {
  owner_ = nullptr;
  length_ = 0;
  put(std::exchange(held_, {}));
}

void LineOutlet::start_timer() { ::timerfd_settime(timer_.get(), 0, &kLineTimeout, nullptr); }

namespace {

constexpr std::size_t kLastLines = 20;
constexpr std::size_t kLongestPart = 65'536;  // longer lines are passed on in parts
constexpr std::size_t kLongestWords = 1'000;  // the part of a line that the report of a failure contains
constexpr auto kPatience = std::chrono::seconds(1);

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

UniqueFd open_log(const std::filesystem::path& path) {
  create_folders(path.parent_path());
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file) throw IoError("launch", {.what = "cannot write " + path.string(), .got = std::strerror(errno)});
  return file;
}

bool are_one_file(int one, int other) {
  struct stat first {
  }, second{};
  return ::fstat(one, &first) == 0 && ::fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// A terminal shows what is written at once, and a program that asks should find it.
bool mixes_lines(int fd) {
  struct stat file {};
  return ::fstat(fd, &file) == 0 && !S_ISCHR(file.st_mode);
}

std::size_t bytes_in(int pipe) {
  int count = 0;
  return ::ioctl(pipe, FIONREAD, &count) == 0 ? static_cast<std::size_t>(count) : 0;
}

}  // namespace

OutputRelay::OutputRelay(const OutputOptions& options, int ranks, const std::filesystem::path& folder)
    : is_one_file_(are_one_file(STDOUT_FILENO, STDERR_FILENO)) {
  const bool is_shared = ranks > 1 && mixes_lines(STDOUT_FILENO);
  for (int local_rank = 0; local_rank < ranks; ++local_rank)
    for (const int number : {STDOUT_FILENO, STDERR_FILENO})
      add_stream(options, local_rank, number, folder, is_shared);
}

OutputRelay::OutputRelay(const std::vector<std::string>& prefixes)
    : is_one_file_(are_one_file(STDOUT_FILENO, STDERR_FILENO)) {
  for (std::size_t i = 0; i < prefixes.size(); ++i)
    for (const int number : {STDOUT_FILENO, STDERR_FILENO})
      add_pipe({.local_rank = static_cast<int>(i), .number = number, .prefix = prefixes[i]});
}

void OutputRelay::add_stream(const OutputOptions& options, int local_rank, int number,
                             const std::filesystem::path& folder, bool is_shared) {
  const bool is_error = number == STDERR_FILENO;
  const auto has = [&](const StreamChoice& choice) {
    return is_error ? choice.has_stderr(local_rank) : choice.has_stdout(local_rank);
  };
  const auto& filter = options.local_ranks_filter;
  const bool is_left_out = !filter.empty() && !filter.contains(local_rank);
  const bool is_teed = has(options.tee), is_redirected = !is_teed && has(options.redirects);
  if (!is_error && !is_teed && !is_redirected && !is_left_out && !is_shared) return;
  Stream stream{.local_rank = local_rank, .number = number, .is_shown = !is_redirected && !is_left_out};
  if (is_teed) stream.prefix = "[" + options.role + std::to_string(local_rank) + "]:";
  if (is_teed || is_redirected) {
    stream.path = folder / std::to_string(local_rank) / (is_error ? "stderr.log" : "stdout.log");
    stream.file = open_log(stream.path);
  }
  add_pipe(std::move(stream));
}

void OutputRelay::add_pipe(Stream stream) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("cannot make a pipe for the output of a rank");
  stream.reader = UniqueFd(ends[0]);
  stream.writer = UniqueFd(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  streams_.push_back(std::move(stream));
}

void OutputRelay::become_output_of(int local_rank) const {
  for (const auto& stream : streams_)
    if (stream.local_rank == local_rank) ::dup2(stream.writer.get(), stream.number);
}

void OutputRelay::close_writers() {
  for (auto& stream : streams_) stream.writer.reset();
}

// While the reader of the lines is slow, nothing is read from the streams: their ranks wait, as they would
// for the reader itself.
void OutputRelay::add_to(std::vector<pollfd>& watched) const {
  stdout_.add_to(watched);
  stderr_.add_to(watched);
  for (const auto& stream : streams_) {
    if (is_wanted(stream) && !must_wait(stream))
      watched.push_back({.fd = stream.reader.get(), .events = POLLIN, .revents = 0});
  }
}

void OutputRelay::look() {
  for (auto& stream : streams_)
    if (is_wanted(stream) && !must_wait(stream)) read(stream);
  stdout_.look();
  stderr_.look();
  heed_lost_reader();
}

bool OutputRelay::is_wanted(const Stream& stream) const { return stream.reader && stream.left != 0U; }

// Processes that ranks have left running may write for ever; their output is not read any more.
bool OutputRelay::has_finished() {
  for (auto& stream : streams_) {
    if (stream.reader && !stream.left) stream.left = bytes_in(stream.reader.get());
    if (stream.left == 0U) end_line(stream);
  }
  return stdout_.is_empty() && stderr_.is_empty() &&
         std::ranges::none_of(streams_, [&](const auto& stream) { return is_wanted(stream); });
}

// Ranks get the error as if they wrote there themselves, unless files get the output as well. stderr is still
// read for the report of a failure.
void OutputRelay::heed_lost_reader() {
  const int failure = (is_one_file_ ? stderr_ : stdout_).failure();
  if (failure == 0) return;
  if (failure == EPIPE) {
    for (auto& stream : streams_)
      if (stream.number == STDOUT_FILENO && stream.is_shown && !stream.file) stream.reader.reset();
  } else if (!std::exchange(has_told_of_loss_, true)) {
    say("lockstep: warning: cannot write to stdout: " + std::string(std::strerror(failure)) +
        "; what ranks write there is lost\n");
  }
}

// A part of a long line must wait, since only whole lines are queued while another line is in progress.
bool OutputRelay::must_wait(const Stream& stream) const {
  const auto& outlet = outlet_of(stream);
  const bool is_long = stream.begun.size() > kLongestPart;
  return stream.is_shown && (outlet.is_full_for(&stream) || (is_long && !outlet.is_free_for(&stream)));
}

OutputRelay::~OutputRelay() {
  for (int i = 0; i < 2; ++i) {  // first the lines in progress, for which others wait
    look();
    for (auto& stream : streams_)
      if (outlet_of(stream).is_amid(&stream)) end_line(stream);
  }
  for (auto& stream : streams_) end_line(stream);
  for (auto* outlet : {&stdout_, &stderr_}) outlet->flush_within(kPatience);
}

bool OutputRelay::say(const std::string& text) {
  stderr_.say(text);
  return true;
}

std::string OutputRelay::last_stderr_lines(int local_rank) const {
  std::string words;
  for (const auto& stream : streams_) {
    if (stream.local_rank != local_rank || stream.number != STDERR_FILENO) continue;
    for (const auto& line : stream.last) words += line;
    words += stream.begun;
  }
  return words;
}

// One buffer at a time: a rank that never stops writing must not keep the supervisor from all else.
void OutputRelay::read(Stream& stream) {
  std::array<char, 65'536> buffer;
  const auto size = std::min(buffer.size(), stream.left.value_or(buffer.size()));
  const auto count = ::read(stream.reader.get(), buffer.data(), size);
  if (count < 0) return;  // nothing to read at the moment
  if (stream.left) *stream.left -= static_cast<std::size_t>(count);
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(count));
  if (stream.file) write_log(stream, bytes);
  take(stream, bytes);
  if (count > 0) return;
  end_line(stream);
  stream.reader.reset();
}

// Ends a line without a line feed when its stream has ended. The filter sees only whole lines.
void OutputRelay::end_line(Stream& stream) {
  if (stream.begun.empty() && !outlet_of(stream).is_amid(&stream)) return;
  if (filter_) return take(stream, "\n");
  show_part(stream, true);
}

// Output that cannot be written is lost: a full disk must not end a run.
void OutputRelay::write_log(Stream& stream, std::string_view bytes) {
  if (write_all(stream.file.get(), bytes)) return;
  const std::string why = std::strerror(errno);
  stream.file.reset();
  say("lockstep: warning: cannot write " + stream.path.string() + ": " + why +
      "; the rest of it is not kept\n");
}

// A carriage return ends a line, too: progress bars write no other. With a line feed behind it, it is one
// end.
void OutputRelay::take(Stream& stream, std::string_view bytes) {
  if (stream.may_go_on && bytes.starts_with('\n')) {
    if (stream.is_shown) outlet_of(stream).add(&stream, "\n", true);
    bytes.remove_prefix(1);
  }
  if (!bytes.empty()) stream.may_go_on = false;
  while (!bytes.empty()) {
    const auto end = bytes.find_first_of("\n\r");
    const bool has_both = end != std::string_view::npos && bytes.substr(end).starts_with("\r\n");
    const auto part = bytes.substr(0, end == std::string_view::npos ? end : end + (has_both ? 2 : 1));
    stream.begun += part;
    bytes.remove_prefix(part.size());
    stream.may_go_on = bytes.empty() && part.ends_with('\r');
    const bool ends = end != std::string_view::npos;
    const bool is_long = stream.begun.size() > kLongestPart && outlet_of(stream).is_free_for(&stream);
    if (ends || is_long) show_part(stream, ends);
  }
}

void OutputRelay::show_part(Stream& stream, bool ends) {
  const bool is_error = stream.number == STDERR_FILENO;
  const bool is_message = is_error && !stream.is_known && filter_ && filter_(stream.local_rank, stream.begun);
  if (!is_message) {
    auto& outlet = outlet_of(stream);
    const auto prefix = outlet.is_amid(&stream) ? std::string() : stream.prefix;
    if (stream.is_shown) outlet.add(&stream, prefix + stream.begun, ends);
    if (is_error && !stream.is_known) remember(stream);
  }
  stream.is_known = !ends && !is_message;
  stream.begun.clear();
}

void OutputRelay::remember(Stream& stream) {
  const bool is_long = stream.begun.size() > kLongestWords;
  stream.last.push_back(is_long ? stream.begun.substr(0, kLongestWords) + "...\n" : stream.begun);
  if (!stream.last.back().ends_with('\n') && !stream.last.back().ends_with('\r')) stream.last.back() += '\n';
  if (stream.last.size() > kLastLines) stream.last.pop_front();
}

}  // namespace lockstep::launch
