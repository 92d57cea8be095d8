#include "checkpoint/shard_file.h"

#include <algorithm>

#include <lockstep/base/atomic_file.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

#include "formats/safetensors_layout.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // stays in the cache between checksum and write

// A run that is all of the tensor in its shape, another in one dimension.
at::Tensor stored(const TensorShard& run) {
  const auto elements = stored_form(run.elements);
  const bool is_all = run.begin == 0 && elements.numel() == c10::multiply_integers(run.shape);
  return is_all ? elements.view(run.shape) : elements.view({-1});
}

std::string name_in_file(const std::string& path, std::size_t cut) {
  return path.size() > cut ? path.substr(cut) : "tensor";
}

std::string write_bytes(FileWriter& file, std::span<const std::byte> bytes) {
  Checksum sum;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
    sum.add(piece);
    file.write(piece);
    bytes = bytes.subspan(piece.size());
  }
  return sum.digits();
}

}  // namespace

void write_shard_file(const std::filesystem::path& folder, const std::string& file,
                      const TensorLeaves& leaves, std::size_t cut, Manifest& manifest) {
  std::vector<at::Tensor> tensors;  // keeps the bytes alive while they are written
  std::vector<safetensors::TensorView> views;
  std::vector<safetensors::Dtype> dtypes;
  for (const auto& [path, leaf] : leaves) {
    tensors.push_back(stored(leaf.run));
    auto view = view_of(name_in_file(path, cut), tensors.back());
    dtypes.push_back(view.dtype);
    views.push_back(safetensors::in_format(std::move(view)));
  }
  const auto layout = safetensors::layout_of(views, {{"format", "pt"}});
  std::vector<std::string> checksums(views.size());
  write_file_atomically(folder / file, [&](FileWriter& writer) {
    writer.write(layout.head);
    for (const auto number : layout.order) checksums[number] = write_bytes(writer, views[number].bytes);
  });
  manifest.files[file] = {layout.file_bytes, checksum(std::as_bytes(std::span(layout.head)))};
  std::size_t number = 0;
  for (const auto& [path, leaf] : leaves) {
    manifest.tensors[path] = {.dtype = dtypes[number],
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
