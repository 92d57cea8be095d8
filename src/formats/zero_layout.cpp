#include "formats/zero_layout.h"

#include <algorithm>

#include "formats/file_text.h"

namespace lockstep::detail {
namespace {

/// Rows that are read as one.
class LongRow {
 public:
  void add(std::size_t rank, std::size_t row, std::uint64_t elements) {
    pieces_.push_back({.rank = rank, .row = row, .begin = length_, .elements = elements});
    length_ += elements;
  }

  std::uint64_t length() const { return length_; }

  /// Appends the runs of `elements` elements from `begin` on, all of which it has.
  void find(std::uint64_t begin, std::uint64_t elements, std::vector<ZeroRun>& runs) const {
    auto piece = std::ranges::upper_bound(pieces_, begin, {}, &ZeroRun::begin);
    if (piece != pieces_.begin()) --piece;
    for (; elements > 0; ++piece) {
      const auto skipped = begin - piece->begin;
      const auto taken = std::min(elements, piece->elements - skipped);
      if (taken > 0)
        runs.push_back({.rank = piece->rank, .row = piece->row, .begin = skipped, .elements = taken});
      begin += taken;
      elements -= taken;
    }
  }

 private:
  std::vector<ZeroRun> pieces_;  // `begin` is that in the long row
  std::uint64_t length_ = 0;
};

std::string too_few(const ZeroParameter& parameter, std::uint64_t there) {
  return "parameter " + in_quotes(parameter.name) + " has " + std::to_string(parameter.elements) +
         " elements, the ranks have only " + std::to_string(there) + " more";
}

std::string left_over(std::uint64_t elements, std::size_t row) {
  return std::to_string(elements) + " elements of row " + std::to_string(row) + " belong to no parameter";
}

/// Finds the parameters of one group. Gives the reason why not, or an empty string.
std::string find_group(const std::vector<ZeroParameter>& group, const LongRow& row, std::size_t number,
                       std::uint64_t alignment, ZeroRuns& runs) {
  std::uint64_t begin = 0;
  for (const auto& parameter : group) {
    const auto there = row.length() - std::min(row.length(), begin);
    if (parameter.elements > there) return too_few(parameter, there);
    row.find(begin, parameter.elements, runs.emplace_back());
    begin += parameter.elements;
    if (__builtin_add_overflow(begin, parameter.padding, &begin)) return "a padding has an impossible size";
  }
  const auto end = std::min(begin, row.length());
  // What is left is padding to a multiple of twice the ranks.
  return row.length() - end < alignment ? std::string() : left_over(row.length() - end, number);
}

std::uint64_t piece_of(const ZeroParameter& parameter, std::uint64_t ranks) {
  return parameter.elements / ranks + (parameter.elements % ranks == 0 ? 0 : 1);
}

}  // namespace

Expected<ZeroRuns> zero_runs_of_groups(const std::vector<std::vector<ZeroParameter>>& groups,
                                       const ZeroLengths& lengths) {
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    if (lengths[rank].size() != groups.size())
      return Unexpected{"rank " + std::to_string(rank) + " has " + std::to_string(lengths[rank].size()) +
                        " rows, there are " + std::to_string(groups.size()) + " groups of parameters"};
  }
  ZeroRuns runs;
  for (std::size_t number = 0; number < groups.size(); ++number) {
    LongRow row;
    for (std::size_t rank = 0; rank < lengths.size(); ++rank) row.add(rank, number, lengths[rank].at(number));
    auto reason = find_group(groups[number], row, number, 2 * lengths.size(), runs);
    if (!reason.empty()) return Unexpected{std::move(reason)};
  }
  return runs;
}

Expected<ZeroRuns> zero_runs_of_pieces(const std::vector<ZeroParameter>& parameters,
                                       const ZeroLengths& lengths) {
  std::vector<LongRow> rows(lengths.size());
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    if (lengths[rank] != lengths.front())
      return Unexpected{"rank " + std::to_string(rank) + " has rows of other sizes than rank 0"};
    for (std::size_t row = 0; row < lengths[rank].size(); ++row)
      rows[rank].add(rank, row, lengths[rank][row]);
  }
  ZeroRuns runs;
  std::uint64_t begin = 0;
  for (const auto& parameter : parameters) {
    const auto piece = piece_of(parameter, lengths.size());
    const auto there = rows.front().length() - begin;
    if (piece > there) return Unexpected{too_few(parameter, there * lengths.size())};
    auto& found = runs.emplace_back();
    auto missing = parameter.elements;
    for (const auto& row : rows) {
      const auto taken = std::min(piece, missing);
      row.find(begin, taken, found);
      missing -= taken;
    }
    begin += piece;
  }
  const auto rest = rows.front().length() - begin;
  if (rest != 0) return Unexpected{left_over(rest, 0)};
  return runs;
}

}  // namespace lockstep::detail
