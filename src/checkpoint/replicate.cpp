// Files of local checkpoints on their way between nodes: to those that hold copies, and to those that lack
// them.

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/base/error.h>
#include <lockstep/formats/mapped_file.h>

#include "checkpoint/local_checkpoints.h"
#include "checkpoint/saving.h"
#include "checkpoint/staging_directory.h"
#include "checkpoint/together.h"
#include "formats/checkpoint_folders.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

bool has_file(const LocalCandidate& candidate, int node, const std::string& file) {
  const auto files = candidate.held.find(node);
  return files != candidate.held.end() &&
         std::ranges::any_of(files->second, [&](const auto& each) { return each.first == file; });
}

// The files that some node lacks, by the node that sends them.
std::map<int, FileList> wanted_by_giver(const LocalCandidate& candidate, int nodes) {
  std::map<std::string, std::pair<int, std::uint64_t>> givers;
  std::map<std::string, int> holders;
  for (const auto& [node, files] : candidate.held) {
    for (const auto& [name, bytes] : files) {
      givers.try_emplace(name, node, bytes);
      ++holders[name];
    }
  }
  std::map<int, FileList> wanted;
  for (const auto& [name, giver] : givers)
    if (holders[name] < nodes) wanted[giver.first].emplace_back(name, giver.second);
  return wanted;
}

std::string text_of_manifest(const fs::path& folder) {
  const MappedFile file(folder / kManifestName);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void give(const fs::path& folder, const FileList& files, int giver, const Communicator& leaders) {
  OutgoingFiles outgoing(folder, files);
  for (const auto& piece : pieces_of(files)) leaders.broadcast(outgoing.read(piece), giver);
  outgoing.finish();
}

// Receives all files of `giver`, also those that this node has already.
void take(const fs::path& folder, const FileList& files, int giver, const LocalCandidate& candidate,
          const Communicator& leaders) {
  IncomingFiles incoming(folder, files);
  for (const auto& piece : pieces_of(files)) {
    leaders.broadcast(incoming.space(piece), giver);
    if (!has_file(candidate, leaders.rank(), files[piece.file].first)) incoming.write(piece);
  }
  incoming.finish();
}

void transfer(const fs::path& folder, const LocalCandidate& candidate, const Communicator& leaders) {
  std::exception_ptr failure;  // of files of this node: the other leaders continue
  for (const auto& [giver, files] : wanted_by_giver(candidate, leaders.size())) {
    try {
      if (giver == leaders.rank()) {
        give(folder, files, giver, leaders);
      } else {
        take(folder, files, giver, candidate, leaders);
      }
    } catch (const CommError&) {
      throw;
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

// A folder that has the name already cannot be used: its manifest is damaged, or belongs to another
// checkpoint.
void give_name(const fs::path& folder, const fs::path& target, fs::file_time_type written) {
  std::error_code failure;
  remove_or_warn(target);
  fs::last_write_time(folder / kManifestName, written, failure);
  if (!failure) fs::rename(folder, target, failure);
  if (!failure) return;
  throw IoError("checkpoint",
                {.what = folder.string() + " cannot be renamed to its place", .got = failure.message()});
}

std::optional<Communicator> group_of_leaders(const FolderNodes& nodes, const Communicator& communicator) {
  std::vector<int> leaders;
  for (int node = 0; node < nodes.count(); ++node) leaders.push_back(nodes.leader_of(node));
  return communicator.new_group(leaders);
}

// Renames `folder` to `target` at the end, where they differ.
void fetch_into(fs::path& folder, const fs::path& target, const LocalCandidate& candidate,
                const FolderNodes& nodes, const Communicator& communicator) {
  const bool is_there = folder == target;
  const int teller = candidate.held.begin()->first;
  const auto texts = read_together(communicator, target, [&] {
    if (nodes.leads() && !is_there) {
      make_private_folder(target.parent_path());
      make_private_folder(folder);
    }
    return nodes.leads() && nodes.own() == teller ? text_of_manifest(folder) : std::string();
  });
  const auto leaders = group_of_leaders(nodes, communicator);
  read_together(communicator, target, [&] {
    if (!leaders) return std::string();
    transfer(folder, candidate, *leaders);
    if (is_there) return std::string();
    write_manifest(folder, texts[static_cast<std::size_t>(nodes.leader_of(teller))]);
    give_name(folder, target, candidate.written);
    folder = target;
    return std::string();
  });
}

}  // namespace

// On a node that had no files of it, nothing is left unless all nodes have received all files.
void fetch_files(const fs::path& target, const LocalCandidate& candidate, const FolderNodes& nodes,
                 const Communicator& communicator) {
  if (nodes.count() == 1) return;
  const bool is_there = candidate.held.contains(nodes.own());
  auto folder = is_there ? target : target.parent_path() / ("." + target.filename().string() + ".part");
  try {
    fetch_into(folder, target, candidate, nodes, communicator);
  } catch (...) {
    if (nodes.leads() && !is_there) remove_or_warn(folder);
    throw;
  }
}

namespace {

std::vector<FileList> lists_of_ranks(const FileList& files, const Communicator& communicator) {
  std::vector<FileList> lists;
  for (const auto& text : communicator.all_gather_bytes(nlohmann::json(files).dump()))
    lists.push_back(nlohmann::json::parse(text).get<FileList>());
  return lists;
}

// The files that one rank sends to this one.
struct Source {
  int rank;
  std::vector<FilePiece> pieces;
  IncomingFiles files;
};

std::vector<Source> sources_at(int jump, const std::filesystem::path& folder,
                               const std::vector<FileList>& lists, const FolderNodes& nodes, int own_rank) {
  std::vector<Source> sources;
  const int node = (nodes.own() + nodes.count() - jump) % nodes.count();
  const auto& ranks = nodes.ranks_of(node);
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    if (nodes.partner(node, static_cast<int>(index), jump) != own_rank) continue;
    const auto& list = lists[static_cast<std::size_t>(ranks[index])];
    sources.push_back({ranks[index], pieces_of(list), IncomingFiles(folder, list)});
  }
  return sources;
}

// Exchanges piece by piece: all ranks have sent their next piece before any of them waits.
void exchange_at(int jump, const std::filesystem::path& folder, const FileList& own,
                 const std::vector<FileList>& lists, const FolderNodes& nodes,
                 const Communicator& communicator) {
  auto sources = sources_at(jump, folder, lists, nodes, communicator.rank());
  const int target = nodes.partner(nodes.own(), nodes.index(), jump);
  const auto pieces = pieces_of(own);
  OutgoingFiles outgoing(folder, own);
  auto rounds = pieces.size();
  for (const auto& source : sources) rounds = std::max(rounds, source.pieces.size());
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<Work> under_way;
    for (auto& [rank, incoming, files] : sources) {
      if (round < incoming.size())
        under_way.push_back(communicator.recv_async(files.space(incoming[round]), rank));
    }
    if (round < pieces.size())
      under_way.push_back(communicator.send_async(outgoing.read(pieces[round]), target));
    for (const auto& work : under_way) work.wait();
    for (auto& [rank, incoming, files] : sources)
      if (round < incoming.size()) files.write(incoming[round]);
  }
  outgoing.finish();
  for (const auto& source : sources) source.files.finish();
}

}  // namespace

void replicate(const std::filesystem::path& folder, const FileList& files, int copies,
               const FolderNodes& nodes, const Communicator& communicator) {
  if (copies == 0) return;
  const auto lists = lists_of_ranks(files, communicator);
  std::exception_ptr failure;  // of this rank's files: its partners continue
  for (int jump = 1; jump <= copies; ++jump) {
    try {
      exchange_at(jump, folder, files, lists, nodes, communicator);
    } catch (const CommError&) {
      throw;
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep::detail
