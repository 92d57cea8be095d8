#include "checkpoint/replicate.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include <lockstep/base/error.h>

#include <nlohmann/json.hpp>

namespace lockstep::detail {
namespace {

std::vector<FileList> lists_of_ranks(const FileList& files, const Communicator& communicator) {
  std::vector<FileList> lists;
  for (const auto& text : communicator.all_gather_bytes(nlohmann::json(files).dump()))
    lists.push_back(nlohmann::json::parse(text).get<FileList>());
  return lists;
}

// What one rank sends here.
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

// Piece by piece: everybody's next one is on its way before anybody waits.
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
  std::exception_ptr failure;  // of this rank's files: its partners go on
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
