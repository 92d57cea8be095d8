// Reads a checkpoint of Python and writes what it found for Python to compare.
//
//   interop_case torch IN OUT          read_torch_file, write_torch_file
//   interop_case lightning IN OUT      read_torch_file, write_lightning_checkpoint
//   interop_case distributed IN OUT    read_distributed_checkpoint, write_torch_file
//   interop_case weights IN OUT        read_weights, write_weights (safetensors)
//   interop_case zip64 IN OUT          a file with one storage, with numbers of 64 bits throughout
//   interop_case huggingface IN OUT [PATTERN REPLACEMENT transpose|keep]...
#include <lockstep/formats/mapped_file.h>
#include <lockstep/formats/torch_file.h>
#include <lockstep/lockstep.h>

#include <iostream>
#include <string_view>

namespace ls = lockstep;

namespace {

std::vector<ls::Rename> renames(std::span<char* const> words) {
  std::vector<ls::Rename> rows;
  for (std::size_t i = 0; i + 2 < words.size(); i += 3) {
    rows.push_back({.pattern = words[i],
                    .replacement = words[i + 1],
                    .transpose = std::string_view(words[i + 2]) == "transpose"});
  }
  return rows;
}

/// Numbers of 64 bits, which else only files of more than 4 GiB have.
void write_with_zip64(const std::string& in, const std::string& out) {
  const ls::MappedFile file(in);
  const auto contents = ls::torch_file::Contents::parse(file.bytes());
  if (!contents) throw std::runtime_error(contents.error());
  const ls::torch_file::StorageBytes storage{.key = "0",
                                             .bytes = contents->bytes_of({.key = "0", .dtype = {}})};
  ls::torch_file::write(out, contents->root(), std::span(&storage, 1), {.zip64_from = 0});
}

void run(std::span<char* const> words) {
  const std::string_view kind = words[0];
  const std::string in = words[1];
  const std::string out = words[2];
  if (kind == "torch") ls::write_torch_file(out, ls::read_torch_file(in));
  if (kind == "lightning") ls::write_lightning_checkpoint(out, ls::read_torch_file(in));
  if (kind == "distributed") ls::write_torch_file(out, ls::read_distributed_checkpoint(in));
  if (kind == "zip64") write_with_zip64(in, out);
  if (kind == "weights") ls::write_weights(out, ls::read_weights(in));
  if (kind == "huggingface") ls::write_weights(out, ls::read_huggingface(in, renames(words.subspan(3))));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) return 2;
  run(std::span<char* const>(argv, static_cast<std::size_t>(argc)).subspan(1));
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
