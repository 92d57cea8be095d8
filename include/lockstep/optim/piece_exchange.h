// What an optimizer of pieces of tensors asks the ranks that hold the other pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep {

/// Pieces of a parameter are runs of its elements, in the order of ranks. They begin at multiples of
/// kGradNormBlock elements, so that sums over blocks of that many are those of the whole, and some are empty.
/// Ranks ask in the same order for the same parameters, which go by their names.
class LOCKSTEP_API PieceExchange {
 public:
  virtual ~PieceExchange();

  /// The shape of the whole. Not Collective. @throws ConfigError for a name that is not sharded here
  virtual std::vector<std::int64_t> shape_of(const std::string& parameter) const = 0;

  /// `mine` has a row for each block of kGradNormBlock elements of this rank's pieces of `parameters`, one
  /// piece after the other: [blocks, n], on the CPU or the parameters' device. Returns the rows of the whole
  /// parameters. Collective; blocking for tensors of the CPU.
  virtual at::Tensor join_blocks(std::span<const std::string> parameters, const at::Tensor& mine) = 0;

  /// A tensor in the shape of a parameter, of which this rank has `elements`, flat.
  struct Part {
    std::string parameter;
    at::Tensor elements;
    double cost = 1.0;  ///< of changing the whole; any unit
  };
  /// Replaces each of `parts`, all of one dtype, by what `change` makes of the whole: on one of the ranks,
  /// which gets the whole in its shape and gives the same number of elements. Each rank changes its share,
  /// one at a time. Collective, blocking.
  using Change = std::function<at::Tensor(const at::Tensor& whole)>;
  virtual void change_whole(std::span<Part> parts, const Change& change) = 0;
};

}  // namespace lockstep
