// Where ZeRO's ranks keep the elements of a parameter. Each rank has flat rows of elements, one for each
// group of parameters (stages 1 and 2) or for each sub-group (stage 3).
//
// Stages 1 and 2: the parameters of a group follow each other in one long row, which is cut into as many
// pieces as there are ranks. Stage 3: each parameter is cut into as many equal pieces, the last ones padded;
// the pieces that a rank has follow each other through all of its rows.
// https://github.com/deepspeedai/DeepSpeed/blob/v0.19.8/deepspeed/utils/zero_to_fp32.py
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

namespace lockstep::detail {

struct ZeroParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t elements = 0;
  std::size_t row = 0;        ///< of the optimizer: a group, or a sub-group of stage 3
  std::uint64_t padding = 0;  ///< stages 1 and 2: elements behind it that are nobody's
};

/// A run of elements in a row of a rank.
struct ZeroRun {
  std::size_t rank = 0;
  std::size_t row = 0;
  std::uint64_t begin = 0;
  std::uint64_t elements = 0;
};

/// Elements of each row, by rank.
using ZeroLengths = std::vector<std::vector<std::uint64_t>>;
/// The runs of each parameter, in the order of the parameters.
using ZeroRuns = std::vector<std::vector<ZeroRun>>;

/// Those of stages 1 and 2; `groups` has the parameters of each row. The reason for a refusal says what does
/// not fit.
LOCKSTEP_API Expected<ZeroRuns> zero_runs_of_groups(const std::vector<std::vector<ZeroParameter>>& groups,
                                                    const ZeroLengths& lengths);

/// Those of stage 3.
LOCKSTEP_API Expected<ZeroRuns> zero_runs_of_pieces(const std::vector<ZeroParameter>& parameters,
                                                    const ZeroLengths& lengths);

}  // namespace lockstep::detail
