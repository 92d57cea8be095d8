// The page: a writer of HTML, and the parts of the page, from its top to its end.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>

#include "report/curve.h"

namespace lockstep::detail {

/// `text` as HTML shows it: no letter of it is markup. Bytes that are no UTF-8 and control characters become
/// U+FFFD.
LOCKSTEP_API std::string escaped(std::string_view text);

/// Names are the program's own; values may be anybody's.
using Attributes = std::initializer_list<std::pair<std::string_view, std::string_view>>;

/// Writes elements one after the other into a string.
class LOCKSTEP_API HtmlWriter {
 public:
  /// Closes an element at its end.
  class [[nodiscard]] Scope {
   public:
    explicit Scope(HtmlWriter& writer) : writer_(writer) {}
    ~Scope() { writer_.close(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    HtmlWriter& writer_;
  };

  /// Begins an element that ends with the returned scope. `tag` must be a literal.
  Scope within(std::string_view tag, Attributes attributes = {});
  /// An element that holds nothing but `content`.
  void element(std::string_view tag, Attributes attributes, std::string_view content = {});
  void text(std::string_view text) { html_ += escaped(text); }
  /// Appends HTML that the program itself has made, unescaped.
  void verbatim(std::string_view html) { html_ += html; }

  const std::string& html() const { return html_; }

 private:
  void open(std::string_view tag, Attributes attributes);
  void close();

  std::string html_;
  std::vector<std::string_view> open_;
};

/// `95.4 MiB`
LOCKSTEP_API std::string bytes_text(double bytes);
/// `1 h 02 min`, `3 min 20 s`, `12.3 s`, `4.56 ms`
LOCKSTEP_API std::string seconds_text(double seconds);
/// `81 %`
LOCKSTEP_API std::string percent_text(double share);

/// The classes of what belongs to run `index`: its colour, its dashes, and what its switch hides.
std::string run_classes(std::size_t index);

struct Cell {
  std::string text = {};
  std::string classes = {};
  std::optional<double> bar = {};       ///< drawn below the text; its length, 0 to 1
  std::optional<std::size_t> run = {};  ///< whose colour stands before the text
};

struct Row {
  std::vector<Cell> cells = {};
  std::string classes = {};
};

/// Which of a table's columns hold numbers, which are aligned to the right.
enum class Columns { kText, kNumbers };

/// A table whose first column names its rows.
void write_table(HtmlWriter& page, const std::vector<Cell>& header, const std::vector<Row>& rows,
                 Columns columns = Columns::kNumbers);

/// A note, such as one about missing data.
void write_note(HtmlWriter& page, std::string_view text);

using ComparedRuns = std::span<const ComparedRun>;

/// A sentence about runs that were not seeded, or differently; empty where there is nothing to say.
std::string note_on_seeds(ComparedRuns runs);

/// A row per run: how it ended, how much it did and how fast.
void write_overview(HtmlWriter& page, ComparedRuns runs, bool has_notes);
/// What failed, of those that did.
void write_failures(HtmlWriter& page, ComparedRuns runs);
/// The curves called `names`: metrics, learning rates and throughput; and their last values.
void write_curves(HtmlWriter& page, ComparedRuns runs, std::span<const std::string> names);
/// Of traces: a bar per rank; else the table of another profiler.
void write_times(HtmlWriter& page, ComparedRuns runs);
/// The largest resident set of each rank.
void write_memory(HtmlWriter& page, ComparedRuns runs);
/// The options that differ, and all of them.
void write_config(HtmlWriter& page, ComparedRuns runs);
/// Versions, ranks, strategy.
void write_environment(HtmlWriter& page, ComparedRuns runs);

/// How a run ended, in a word: "success", "failed", ...
std::string status_of(const RunRecord& run);

}  // namespace lockstep::detail
