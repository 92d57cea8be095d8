#include "checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstring>

#include <lockstep/base/error.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

// A tensor of bytes that somebody else owns; `owner` keeps them.
at::Tensor tensor_on(std::span<std::byte> bytes, at::ScalarType type, std::shared_ptr<const void> owner) {
  const auto elements = static_cast<std::int64_t>(bytes.size() / c10::elementSize(type));
  return at::from_blob(
      bytes.data(), {elements}, [owner = std::move(owner)](void*) {}, type);
}

bool is_aligned(const void* address, at::ScalarType type) {
  return reinterpret_cast<std::uintptr_t>(address) % c10::elementSize(type) == 0;
}

void check_run(const std::string& path, std::int64_t begin, std::int64_t elements, std::int64_t total) {
  if (begin >= 0 && elements >= 0 && begin <= total && elements <= total - begin) return;
  throw CheckpointError("checkpoint",
                        {.what = "tensor " + path,
                         .expected = "a run of its " + std::to_string(total) + " elements",
                         .got = std::to_string(elements) + " from " + std::to_string(begin) + " on"});
}

}  // namespace

at::Tensor tensor_in(const CheckpointFiles& files, const std::string& path) {
  const auto& shape = files.record(path).shape;
  return run_in(files, path, 0, c10::multiply_integers(shape)).view(shape);
}

at::Tensor run_in(const CheckpointFiles& files, const std::string& path, std::int64_t begin,
                  std::int64_t elements) {
  const auto& record = files.record(path);
  const auto type = scalar_type(record.dtype);
  const auto width = static_cast<std::int64_t>(c10::elementSize(type));
  check_run(path, begin, elements, c10::multiply_integers(record.shape));
  at::Tensor joined = at::empty({0}, type);
  for (const auto& part : record.parts) {
    const auto first = std::max(begin, part.begin),
               last = std::min(begin + elements, part.begin + part.elements);
    if (first >= last) continue;
    const auto bytes = files.bytes_of(path, part)
                           .subspan(static_cast<std::size_t>((first - part.begin) * width),
                                    static_cast<std::size_t>((last - first) * width));
    if (last - first == elements && is_aligned(bytes.data(), type))
      return tensor_on(bytes, type, files.file(part.file));
    if (joined.numel() == 0) joined = at::empty({elements}, type);
    std::memcpy(static_cast<std::byte*>(joined.mutable_data_ptr()) + (first - begin) * width, bytes.data(),
                bytes.size());
  }
  return joined;
}

}  // namespace lockstep::detail
