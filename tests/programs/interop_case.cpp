// Reads a checkpoint of Python and writes what it found for Python to compare.
//
//   interop_case torch IN OUT          read_torch_file, write_torch_file
//   interop_case lightning IN OUT      read_torch_file, write_lightning_checkpoint
//   interop_case distributed IN OUT    read_distributed_checkpoint, write_torch_file
//   interop_case weights IN OUT        read_weights, write_weights (safetensors)
//   interop_case zip64 IN OUT          a file with one storage, with numbers of 64 bits throughout
//   interop_case leaves IN OUT [IN OUT]...   read_torch_file: tensors, with their bytes, and what is not
//   read, as text interop_case ask IN OUT NAME...    read_torch_file: trees by their names, the last of which
//   is an integer interop_case huggingface IN OUT [PATTERN REPLACEMENT transpose|keep]...
#include <lockstep/formats/mapped_file.h>
#include <lockstep/formats/torch_file.h>
#include <lockstep/lockstep.h>

#include <c10/core/ScalarType.h>

#include <fstream>
#include <iomanip>
#include <iostream>
#include <string_view>

#include "program_case.h"

namespace ls = lockstep;

namespace interop_case {

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

void write_hex(std::ostream& out, const at::Tensor& tensor) {
  const auto contiguous = tensor.contiguous();
  const auto* bytes = static_cast<const unsigned char*>(contiguous.const_data_ptr());
  for (std::size_t i = 0; i < contiguous.nbytes(); ++i)
    out << std::hex << std::setw(2) << std::setfill('0') << int{bytes[i]};
  out << std::dec;
}

void write_leaf(std::ostream& out, const std::string& path, const ls::StateValue& value) {
  if (const auto* tree = std::get_if<ls::StateTree>(&value))
    out << path << "\tunread\t\t" << tree->what_is_unread() << '\n';
  const auto* tensor = std::get_if<at::Tensor>(&value);
  if (tensor == nullptr) return;
  out << path << "\ttorch." << c10::getDtypeNames(tensor->scalar_type()).first << '\t';
  for (std::int64_t dim = 0; dim < tensor->dim(); ++dim) out << (dim > 0 ? "," : "") << tensor->size(dim);
  out << '\t';
  write_hex(out, *tensor);
  out << '\n';
}

void write_leaves(std::span<char* const> files) {
  for (std::size_t i = 0; i + 1 < files.size(); i += 2) {
    const auto state = ls::read_torch_file(files[i]);
    std::ofstream out(files[i + 1]);
    for (const auto& [path, value] : state.flatten()) write_leaf(out, path, *value);
  }
}

void ask(const std::string& in, std::span<char* const> names) {
  auto state = ls::read_torch_file(in);
  for (const auto* name : names.first(names.size() - 1))
    state = ls::StateTree(state.get<ls::StateTree>(name));
  (void)state.get<std::int64_t>(names.back());
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
  if (kind == "leaves") write_leaves(words.subspan(1));
  if (kind == "ask") ask(in, words.subspan(3));
  if (kind == "huggingface") ls::write_weights(out, ls::read_huggingface(in, renames(words.subspan(3))));
}

int start(int argc, char** argv) try {
  if (argc < 4) return 2;
  run(std::span<char* const>(argv, static_cast<std::size_t>(argc)).subspan(1));
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}

const ProgramCase kCase{"interop_case", start};

}  // namespace interop_case
