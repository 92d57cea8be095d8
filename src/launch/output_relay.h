// The relay of what ranks write to stdout and stderr: whole lines, so that no two ranks share one, go through
// queues that never make the supervisor wait. Long lines are passed on in parts that stay together.
#pragma once

#include <poll.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/launch/launch_options.h>

#include "launch/posix.h"
#include "launch/rank_observer.h"
#include "launch/signals.h"

namespace lockstep::launch {

/// A queue in front of a descriptor of this process, such as its stderr.
class Outlet {
 public:
  explicit Outlet(int fd) : fd_(fd) {}

  void add(std::string_view bytes) { queue_ += bytes; }
  bool is_empty() const { return queue_.empty(); }
  /// The error of the last write that was refused; 0: none was.
  int failure() const { return failure_; }
  /// Whether writers should wait until the queue is shorter.
  bool is_full() const { return queue_.size() > kEnough; }
  void add_to(std::vector<pollfd>& watched) const;
  /// Writes what can be written without blocking. Output that the other end refuses is lost: a full disk must
  /// not end a run.
  void flush();
  /// The same, but waits for a slow reader, for at most `patience`.
  void flush_within(std::chrono::milliseconds patience);

 private:
  static constexpr std::size_t kEnough = std::size_t{1} << 20;

  int fd_;
  int failure_ = 0;
  std::string queue_;
};

/// An outlet for the lines of several writers, in which no line is cut by another one. A line may arrive in
/// parts; meanwhile whole lines of other writers are queued. A line is cut when no part of it has arrived for
/// a second while others wait, or when it never ends. Nothing but flush_within() blocks.
class LineOutlet {
 public:
  using Writer = const void*;  ///< identifies a writer

  /// @throws Error without descriptors
  explicit LineOutlet(int fd);

  /// The next part of the line of `writer`; `ends`: its last one. Only who is_free_for() may add one that
  /// does not end. A line feed that the last one lacks is written before whatever comes next.
  void add(Writer writer, std::string_view part, bool ends);
  /// Adds a line of the launcher itself, which does not wait for lines in progress.
  void say(std::string_view line);

  /// Whether the next part of `writer` continues a line.
  bool is_amid(Writer writer) const { return owner_ == writer; }
  bool is_free_for(Writer writer) const { return owner_ == nullptr || owner_ == writer; }
  /// Whether `writer` should wait until the queue is shorter.
  bool is_full_for(Writer writer) const;

  bool is_empty() const { return out_.is_empty() && held_.empty(); }
  /// As the function of Outlet.
  int failure() const { return out_.failure(); }

  void add_to(std::vector<pollfd>& watched) const;
  void look();
  /// Ends the line that is in progress.
  void cut();
  /// As the function of Outlet.
  void flush_within(std::chrono::milliseconds patience) { out_.flush_within(patience); }
  /// The descriptor of its timer.
  int timer() const { return timer_.get(); }

 private:
  void put(std::string_view part);
  void release();
  void start_timer();

  Outlet out_;
  UniqueFd timer_;
  Writer owner_ = nullptr;  ///< of the line that is in progress
  std::size_t length_ = 0;  ///< of it so far, in bytes
  bool lacks_end_ = false;  ///< what was written last was no whole line
  std::string held_;        ///< lines of others that wait for its end
};

/// The stdout and stderr of the ranks of one attempt. stderr always passes through here, since its last lines
/// belong to the report of a failure; stdout where it is asked for, and where several ranks share one that is
/// no terminal.
class OutputRelay final : public RankObserver {
 public:
  /// `folder` gets a folder for each local rank whose output goes to files.
  /// @throws IoError when a file cannot be made; Error without descriptors
  OutputRelay(const OutputOptions& options, int ranks, const std::filesystem::path& folder);

  /// Relays both streams of processes with these prefixes, without files.
  explicit OutputRelay(const std::vector<std::string>& prefixes);

  /// `filter` sees each line on stderr, with its end, before it is shown; true: it is not to be shown.
  void set_filter(std::function<bool(int local_rank, std::string_view line)> filter) {
    filter_ = std::move(filter);
  }

  /// Shows what is left, also lines without an end.
  ~OutputRelay() override;
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  /// In the rank, between fork and exec: its output goes here from now on. Safe in a signal handler.
  void become_output_of(int local_rank) const;
  /// Closes the writing ends in this process; to be called once all ranks exist.
  void close_writers();

  /// After a run that has succeeded: where processes that its ranks have left running can still write, a
  /// process of its own goes on reading until they have ended. Their lines go to the files of --log-dir, a
  /// terminal or a regular file; what would go into a pipe is dropped, so that its reader need not wait for
  /// them. Call it after has_finished() only.
  void leave_reader_for_writers(SignalScope& signals);

  void add_to(std::vector<pollfd>& watched) const override;
  void look() override;
  bool has_finished() override;
  /// Its last 20 lines on stderr.
  std::string last_stderr_lines(int local_rank) const override;
  bool say(const std::string& text) override;

 private:
  // One stream of one rank.
  struct Stream {
    int local_rank;
    int number;  ///< 1: stdout, 2: stderr
    std::string prefix = {};
    bool is_shown = true;
    UniqueFd reader = {};
    UniqueFd writer = {};
    UniqueFd file = {};
    std::filesystem::path path = {};       ///< of `file`
    std::string begun = {};                ///< the part of an unfinished line that was not shown yet
    bool is_known = false;                 ///< the beginning of that line was recorded, and is no message
    bool may_go_on = false;                ///< the last line ended in \r: a \n belongs to it
    std::optional<std::size_t> left = {};  ///< bytes that are still to be read; nothing: all that come
    std::deque<std::string> last = {};
  };

  void add_stream(const OutputOptions& options, int local_rank, int number,
                  const std::filesystem::path& folder, bool is_shared);
  void add_pipe(Stream stream);
  [[noreturn]] void read_until_writers_end() noexcept;
  void read(Stream& stream);
  void write_log(Stream& stream, std::string_view bytes);
  void take(Stream& stream, std::string_view bytes);
  void show_part(Stream& stream, bool ends);
  void end_line(Stream& stream);
  void heed_lost_reader();
  bool is_wanted(const Stream& stream) const;
  void remember(Stream& stream);
  bool must_wait(const Stream& stream) const;
  LineOutlet& outlet_of(const Stream& stream) {
    return stream.number == 1 && !is_one_file_ ? stdout_ : stderr_;
  }
  const LineOutlet& outlet_of(const Stream& stream) const {
    return const_cast<OutputRelay*>(this)->outlet_of(stream);
  }

  std::vector<Stream> streams_;
  std::function<bool(int local_rank, std::string_view line)> filter_ = {};
  LineOutlet stdout_{1};
  LineOutlet stderr_{2};
  bool is_one_file_;  ///< stdout and stderr are, as with 2>&1
  bool has_told_of_loss_ = false;
};

}  // namespace lockstep::launch
