#include "checkpoint/shard_file.h"

#include <algorithm>
#include <future>
#include <thread>

#include <lockstep/base/atomic_file.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

#include "formats/safetensors_layout.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // stays in the cache between checksum and write
constexpr std::uint64_t kLargeFileBytes = std::uint64_t{16} << 20;

// A run that is all of the tensor in its shape, another in one dimension.
at::Tensor stored(const TensorShard& run) {
  const auto elements = stored_form(run.elements);
  const bool is_all = run.begin == 0 && elements.numel() == c10::multiply_integers(run.shape);
  return is_all ? elements.view(run.shape) : elements.view({-1});
}

std::string name_in_file(const std::string& path, std::size_t cut) {
  return path.size() > cut ? path.substr(cut) : "tensor";
}

template <class Act>
void for_pieces(std::span<const std::byte> bytes, const Act& act) {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kPieceBytes)))
    act(bytes.first(std::min(bytes.size(), kPieceBytes)));
}

// Writes the tensors in the order of `layout`; returns their checksums, in that of `views`. Large files are
// read a second time, by another thread: write() takes longer than the checksum, and waits for memory less.
std::vector<std::string> write_tensors(FileWriter& file, const safetensors::Layout& layout,
                                       std::span<const safetensors::TensorView> views) {
  const bool by_two = layout.file_bytes >= kLargeFileBytes && std::thread::hardware_concurrency() > 1;
  std::vector<Checksum> sums(views.size());
  const auto write = [&](std::span<const std::byte> piece) { file.write(piece); };
  const auto add_all = [&] {
    for (const auto number : layout.order)
      for_pieces(views[number].bytes, [&](auto piece) { sums[number].add(piece); });
  };
  if (by_two) {
    const auto other = std::async(std::launch::async, add_all);
    for (const auto number : layout.order) for_pieces(views[number].bytes, write);
    other.wait();
  } else {
    for (const auto number : layout.order) {
      for_pieces(views[number].bytes, [&](auto piece) {
        sums[number].add(piece);
        write(piece);
      });
    }
  }
  std::vector<std::string> digits;
  for (auto& sum : sums) digits.push_back(sum.digits());
  return digits;
}

}  // namespace

void write_shard_file(const std::filesystem::path& folder, const std::string& file,
                      const TensorLeaves& leaves, std::size_t cut, Manifest& manifest) {
  std::vector<at::Tensor> tensors;  // keeps the bytes alive while they are written
  std::vector<safetensors::TensorView> views;
  for (const auto& [path, leaf] : leaves) {
    tensors.push_back(stored(leaf.run));
    views.push_back(view_of(name_in_file(path, cut), tensors.back()));
  }
  const auto layout = safetensors::layout_of(views, {{"format", "pt"}});
  std::vector<std::string> checksums;
  write_file_atomically(folder / file, [&](FileWriter& writer) {
    writer.write(layout.head);
    checksums = write_tensors(writer, layout, views);
  });
  manifest.files[file] = {layout.file_bytes, checksum(std::as_bytes(std::span(layout.head)))};
  std::size_t number = 0;
  for (const auto& [path, leaf] : leaves) {
    manifest.tensors[path] = {.dtype = views[number].dtype,
                              .shape = leaf.run.shape,
                              .parts = {{.file = file,
                                         .name = views[number].name,
                                         .offset = layout.offsets[number],
                                         .begin = leaf.run.begin,
                                         .elements = leaf.run.elements.numel(),
                                         .checksum = checksums[number]}}};
    ++number;
  }
}

}  // namespace lockstep::detail
