#include "checkpoint/folder_nodes.h"

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>

#include "checkpoint/together.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

std::string new_mark(int rank) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), ".here-%d-%08x%08x", rank, std::random_device()(),
                std::random_device()());
  return name.data();
}

// A file that is gone with it.
class Mark {
 public:
  Mark(const fs::path& folder, const std::string& name) : path_(folder / name) {
    write_file_atomically(path_, "");
  }
  ~Mark() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

 private:
  fs::path path_;
};

int first_seen(const fs::path& folder, const std::vector<std::string>& marks) {
  for (std::size_t rank = 0; rank < marks.size(); ++rank)
    if (fs::exists(folder / marks[rank])) return static_cast<int>(rank);
  throw IoError("checkpoint", {.what = "folder " + folder.string() + " is in use",
                               .expected = "what this rank has put there just now",
                               .got = "nothing of it",
                               .hint = "another job uses this run directory: each needs its own"});
}

}  // namespace

FolderNodes::FolderNodes(const fs::path& folder, const Communicator& communicator) {
  std::unique_ptr<Mark> own_mark;
  const auto what = "folder " + folder.string() + " cannot be used";
  const auto marks = all_or_none(communicator, what, [&] {
    const auto name = new_mark(communicator.rank());
    own_mark = std::make_unique<Mark>(folder, name);
    return name;
  });
  const auto leaders =
      all_or_none(communicator, what, [&] { return std::to_string(first_seen(folder, marks)); });
  std::map<int, std::vector<int>> by_leader;
  for (std::size_t rank = 0; rank < leaders.size(); ++rank)
    by_leader[std::stoi(leaders[rank])].push_back(static_cast<int>(rank));
  for (auto& [leader, ranks] : by_leader) {
    for (std::size_t index = 0; index < ranks.size(); ++index) {
      if (ranks[index] != communicator.rank()) continue;
      own_ = count();
      index_ = static_cast<int>(index);
    }
    ranks_.push_back(std::move(ranks));
  }
}

int FolderNodes::partner(int node, int index, int jump) const {
  const auto& ranks = ranks_of((node + jump) % count());
  return ranks[static_cast<std::size_t>(index) % ranks.size()];
}

}  // namespace lockstep::detail
