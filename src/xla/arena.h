// Arena: arrays that lie one behind the other in a flat one, as an optimizer keeps its state. XLA computes
// them all at once, and in place, where they are made as one array.
#pragma once

#include <optional>
#include <vector>

#include "xla/emitter.h"

namespace lockstep::xla {

/// Elements that fit between two arrays of an arena, which begin at multiples of 64 bytes: fewer than these
/// are nobody's.
std::int64_t elements_of_alignment(at::ScalarType dtype);

class Arena {
 public:
  /// Nothing where the arrays do not lie so.
  static std::optional<Arena> of(const std::vector<Named>& arrays);

  /// Whether both have their arrays in the same places.
  bool matches(const Arena& other) const;
  Shape shape() const { return {{size_}, dtype_}; }
  std::int64_t begin_of(std::size_t array) const { return begins_[array]; }

  /// All of it, with what is nobody's.
  Named flat(Emitter& emit) const;
  /// Others in the same places, of the same type, with zeros between them.
  Named flat_of(Emitter& emit, const std::vector<Named>& arrays) const;
  /// What lies in these places of `flat`.
  std::vector<Named> parts(Emitter& emit, const Named& flat) const;

 private:
  Named whole_;  // in which the first array begins at first_
  std::int64_t first_ = 0, size_ = 0;
  at::ScalarType dtype_ = at::kFloat;
  std::vector<std::int64_t> begins_;  // from first_ on
  std::vector<std::vector<std::int64_t>> sizes_;
};

/// A write to elements of a flat array, from `begin` on.
struct FlatWrite {
  std::int64_t begin = 0;
  Named values = {};  ///< flat
};

/// `memory` after writes, which come in their order: those of neighbours in one array are one write.
Named with_writes(Emitter& emit, Named memory, const std::vector<FlatWrite>& writes);

}  // namespace lockstep::xla
