// Passes on what ranks write: whole lines, so that no two ranks share one. Long ones in parts that stay
// together.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/launch/launch_options.h>

#include "launch/outlet.h"
#include "launch/posix.h"
#include "launch/rank_observer.h"

namespace lockstep::launch {

/// The stdout and stderr of the ranks of one attempt. stderr always passes through here, since its last lines
/// belong to the report of a failure; stdout where it is asked for, and where several ranks share one that is
/// no terminal.
class OutputRelay final : public RankObserver {
 public:
  /// `folder` gets a folder for each local rank whose output goes to files.
  /// @throws IoError when a file cannot be made; Error without descriptors
  OutputRelay(const OutputOptions& options, int ranks, const std::filesystem::path& folder);

  /// Both streams of processes with these prefixes, to nobody's files.
  explicit OutputRelay(const std::vector<std::string>& prefixes);

  /// `filter` sees each line on stderr, with its end, before it is shown; true: it is not to be shown.
  void set_filter(std::function<bool(int local_rank, std::string_view line)> filter) {
    filter_ = std::move(filter);
  }

  /// Shows what is left, also of lines that are not over.
  ~OutputRelay() override;
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  /// In the rank, between fork and exec: its output goes here from now on. Safe in a signal handler.
  void become_output_of(int local_rank) const;
  /// Once all ranks exist.
  void close_writers();

  void add_to(std::vector<pollfd>& watched) const override;
  void look() override;
  bool has_finished() override;
  /// Its last 20 lines on stderr.
  std::string last_words(int local_rank) const override;
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
    std::string begun = {};                ///< of a line that is not over, what was not shown
    bool is_known = false;                 ///< of that line, the beginning was remembered, and is no message
    bool may_go_on = false;                ///< the last line ended in \r: a \n belongs to it
    std::optional<std::size_t> left = {};  ///< bytes that are still to be read; nothing: all that come
    std::deque<std::string> last = {};
  };

  void add_stream(const OutputOptions& options, int local_rank, int number,
                  const std::filesystem::path& folder, bool is_shared);
  void add_pipe(Stream stream);
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
