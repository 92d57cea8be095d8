// Lists of hosts as schedulers write them, such as SLURM's node list: `node1,node[3-5,08]`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::cluster {

/// The hosts of `text` in order: names separated by commas or blanks, of which each may hold ranges in
/// brackets, such as `rack[1-2]n[08-10,15]`. Leading zeros are kept. `name` is the variable that has the
/// text.
/// @throws ConfigError naming the variable and the text when there is no host, a bracket is open, a range is
/// none, or it stands for more than kMaxRanks hosts
LOCKSTEP_API std::vector<std::string> expand_node_list(std::string_view name, std::string_view text);

}  // namespace lockstep::cluster
