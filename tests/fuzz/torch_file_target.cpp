#include <lockstep/formats/torch_file.h>

#include "fuzz/pickle_seeds.h"
#include "fuzz/target.h"

namespace lockstep::fuzz {
namespace {

/// An archive around `pickle`, with the storages that the seeds name; the checksums are right.
std::string file_of(std::span<const std::byte> pickle) {
  std::string file;
  const auto append = [&](std::span<const std::byte> bytes) {
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  zip::Writer writer(append);
  writer.add("a/data.pkl", pickle);
  writer.add("a/data/0", std::string(24, 'x'));
  writer.add("a/data/1", std::string(800, 'y'));
  writer.finish();
  return file;
}

void check_tensor(const torch_file::Contents& contents, const pickle::Tensor& tensor) {
  const auto bytes = contents.bytes_of(*tensor.storage);
  auto last_element = static_cast<std::size_t>(tensor.offset);
  for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim) {
    if (tensor.shape[dim] == 0) return;
    last_element += static_cast<std::size_t>((tensor.shape[dim] - 1) * tensor.stride[dim]);
  }
  expect((last_element + 1) * dtype_bytes(tensor.dtype) <= bytes.size(), "a tensor outside its storage");
}

void check(const torch_file::Contents& contents, const pickle::Value& value) {
  if (const auto* tensor = value.as<pickle::Tensor>()) check_tensor(contents, *tensor);
  if (const auto* list = value.as<pickle::List>())
    for (const auto& item : *list) check(contents, item);
  if (const auto* tuple = value.as<pickle::Tuple>())
    for (const auto& item : tuple->items) check(contents, item);
  if (const auto* dict = value.as<pickle::Dict>()) {
    for (const auto& [key, held] : dict->entries) {
      check(contents, key);
      check(contents, held);
    }
  }
}

void run_torch_file(std::span<const std::byte> input) {
  const std::string file = file_of(input);
  const auto contents = torch_file::Contents::parse(bytes_of(file));
  if (!contents) return expect(!contents.error().empty(), "gave no reason");
  check(*contents, contents->root());
}

}  // namespace

Target torch_file_target() {
  return {.name = "torch_file",
          .seeds = pickle_seeds(),
          .tokens = pickle_tokens(),
          .memory_bytes = std::size_t{64} << 10,
          .memory_per_byte = 128,
          .run = run_torch_file};
}

}  // namespace lockstep::fuzz
