#include "formats/zero_checkpoint.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include <lockstep/base/error.h>

#include "formats/file_text.h"

namespace lockstep::detail {
namespace {

/// The rows of several ranks as one long row.
class LongRow {
 public:
  void add(std::size_t rank, std::size_t row, std::uint64_t elements) {
    pieces_.push_back({.rank = rank, .row = row, .begin = length_, .elements = elements});
    length_ += elements;
  }

  std::uint64_t length() const { return length_; }

  /// Appends the runs of `elements` elements from `begin` on, all of which it has.
  void find(std::uint64_t begin, std::uint64_t elements, std::vector<ZeroRun>& runs) const {
    auto piece = std::ranges::upper_bound(pieces_, begin, {}, &ZeroRun::begin);
    if (piece != pieces_.begin()) --piece;
    for (; elements > 0; ++piece) {
      const auto skipped = begin - piece->begin;
      const auto taken = std::min(elements, piece->elements - skipped);
      if (taken > 0)
        runs.push_back({.rank = piece->rank, .row = piece->row, .begin = skipped, .elements = taken});
      begin += taken;
      elements -= taken;
    }
  }

 private:
  std::vector<ZeroRun> pieces_;  // `begin` is that in the long row
  std::uint64_t length_ = 0;
};

std::string too_few(const ZeroParameter& parameter, std::uint64_t there) {
  return "parameter " + in_quotes(parameter.name) + " has " + std::to_string(parameter.elements) +
         " elements, the ranks have only " + std::to_string(there) + " more";
}

std::string left_over(std::uint64_t elements, std::size_t row) {
  return std::to_string(elements) + " elements of row " + std::to_string(row) + " belong to no parameter";
}

/// Finds the runs of the parameters of one group. Returns the reason where that fails, an empty string
/// otherwise.
std::string find_group(const std::vector<ZeroParameter>& group, const LongRow& row, std::size_t number,
                       std::uint64_t alignment, ZeroRuns& runs) {
  std::uint64_t begin = 0;
  for (const auto& parameter : group) {
    const auto there = row.length() - std::min(row.length(), begin);
    if (parameter.elements > there) return too_few(parameter, there);
    row.find(begin, parameter.elements, runs.emplace_back());
    begin += parameter.elements;
    if (__builtin_add_overflow(begin, parameter.padding, &begin)) return "a padding has an impossible size";
  }
  const auto end = std::min(begin, row.length());
  // What is left is padding to a multiple of twice the ranks.
  return row.length() - end < alignment ? std::string() : left_over(row.length() - end, number);
}

std::uint64_t piece_of(const ZeroParameter& parameter, std::uint64_t ranks) {
  return parameter.elements / ranks + (parameter.elements % ranks == 0 ? 0 : 1);
}

}  // namespace

Expected<ZeroRuns> zero_runs_of_groups(const std::vector<std::vector<ZeroParameter>>& groups,
                                       const ZeroLengths& lengths) {
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    if (lengths[rank].size() != groups.size())
      return Unexpected{"rank " + std::to_string(rank) + " has " + std::to_string(lengths[rank].size()) +
                        " rows, there are " + std::to_string(groups.size()) + " groups of parameters"};
  }
  ZeroRuns runs;
  for (std::size_t number = 0; number < groups.size(); ++number) {
    LongRow row;
    for (std::size_t rank = 0; rank < lengths.size(); ++rank) row.add(rank, number, lengths[rank].at(number));
    auto reason = find_group(groups[number], row, number, 2 * lengths.size(), runs);
    if (!reason.empty()) return Unexpected{std::move(reason)};
  }
  return runs;
}

Expected<ZeroRuns> zero_runs_of_pieces(const std::vector<ZeroParameter>& parameters,
                                       const ZeroLengths& lengths) {
  std::vector<LongRow> rows(lengths.size());
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    if (lengths[rank] != lengths.front())
      return Unexpected{"rank " + std::to_string(rank) + " has rows of other sizes than rank 0"};
    for (std::size_t row = 0; row < lengths[rank].size(); ++row)
      rows[rank].add(rank, row, lengths[rank][row]);
  }
  ZeroRuns runs;
  std::uint64_t begin = 0;
  for (const auto& parameter : parameters) {
    const auto piece = piece_of(parameter, lengths.size());
    const auto there = rows.front().length() - begin;
    if (piece > there) return Unexpected{too_few(parameter, there * lengths.size())};
    auto& found = runs.emplace_back();
    auto missing = parameter.elements;
    for (const auto& row : rows) {
      const auto taken = std::min(piece, missing);
      row.find(begin, taken, found);
      missing -= taken;
    }
    begin += piece;
  }
  const auto rest = rows.front().length() - begin;
  if (rest != 0) return Unexpected{left_over(rest, 0)};
  return runs;
}

namespace {

using Groups = std::vector<std::vector<ZeroParameter>>;

constexpr int kPiecesStage = 3;

bool has_gaps(const pickle::Tensor& tensor) {
  std::int64_t step = 1;
  for (std::size_t dim = tensor.shape.size(); dim-- > 0;) {
    if (tensor.shape[dim] != 1 && tensor.stride[dim] != step) return true;
    step *= tensor.shape[dim];
  }
  return false;
}

std::uint64_t padding_of(const OpenedTorchFile& file, const pickle::List* paddings, std::size_t group,
                         std::size_t parameter) {
  if (paddings == nullptr) return 0;
  const auto* of_group = group < paddings->size() ? (*paddings)[group].as<pickle::List>() : nullptr;
  const auto* padding = of_group != nullptr && parameter < of_group->size()
                            ? (*of_group)[parameter].as<std::int64_t>()
                            : nullptr;
  if (padding != nullptr && *padding >= 0) return static_cast<std::uint64_t>(*padding);
  refuse_key(file, "param_alignment_paddings", "a number for each parameter", "fewer, or other values");
}

std::vector<ZeroParameter> read_group(const OpenedTorchFile& file, const pickle::Value& shapes) {
  const auto* dict = shapes.as<pickle::Dict>();
  if (dict == nullptr) refuse_key(file, "param_shapes", "a list of dicts", std::string(shapes.kind()));
  std::vector<ZeroParameter> group;
  for (const auto& [key, value] : dict->entries) {
    const auto* name = key.as<std::string>();
    if (name == nullptr) refuse_key(file, "param_shapes", "names of parameters", std::string(key.kind()));
    ZeroParameter parameter{.name = *name, .shape = zero_shape(file, *name, value)};
    parameter.elements = zero_elements(file, *name, parameter.shape);
    group.push_back(std::move(parameter));
  }
  return group;
}

std::uint64_t length_of(const StoredElements& row) {
  return row.runs.front().size() / dtype_bytes(row.dtype);
}

}  // namespace

std::vector<std::int64_t> zero_shape(const OpenedTorchFile& file, const std::string& name,
                                     const pickle::Value& shape) {
  std::vector<std::int64_t> extents;
  const auto* tuple = shape.as<pickle::Tuple>();
  const auto* list = shape.as<pickle::List>();
  if (tuple == nullptr && list == nullptr)
    refuse_key(file, "the shape of " + in_quotes(name), "a torch.Size", std::string(shape.kind()));
  for (const auto& item : tuple == nullptr ? *list : tuple->items) {
    const auto* extent = item.as<std::int64_t>();
    if (extent == nullptr || *extent < 0)
      refuse_key(file, "the shape of " + in_quotes(name), "integers, 0 or more", std::string(item.kind()));
    extents.push_back(*extent);
  }
  return extents;
}

std::uint64_t zero_elements(const OpenedTorchFile& file, const std::string& name,
                            const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const auto extent : shape) {
    if (__builtin_mul_overflow(elements, extent, &elements))
      refuse_key(file, "the shape of " + in_quotes(name), "a possible one", "more than 2^63 elements");
  }
  return static_cast<std::uint64_t>(elements);
}

StoredElements elements_of(const OpenedTorchFile& file, const pickle::Tensor& tensor) {
  const auto bytes = dtype_bytes(tensor.dtype);
  const auto storage = file.contents().bytes_of(*tensor.storage);
  std::uint64_t elements = 1;  // the tensor lies within its storage, so that the product does not overflow
  for (const auto extent : tensor.shape) elements *= static_cast<std::uint64_t>(extent);
  if (tensor.is_conj || tensor.is_neg || elements > storage.size() / bytes)
    refuse_key(file, "a tensor in storage " + in_quotes(tensor.storage->key), "elements of its own",
               "a view of those of others, expanded, conjugated or with the other sign");
  StoredElements found{.dtype = tensor.dtype};
  if (elements == 0) {
    found.runs.emplace_back();
  } else if (has_gaps(tensor)) {
    found.strided = StridedElements{.storage = storage,
                                    .offset = tensor.offset,
                                    .shape = tensor.shape,
                                    .stride = tensor.stride,
                                    .count = elements};
  } else {
    found.runs.push_back(storage.subspan(static_cast<std::size_t>(tensor.offset) * bytes, elements * bytes));
  }
  return found;
}

ZeroCheckpoint::ZeroCheckpoint(ZeroFiles files) : files_(std::move(files)) {
  if (stage() == 0) return;
  check_steps(files_);
  read_rows();
  refuse_copies();
  find_runs(read_groups());
}

std::vector<std::vector<ZeroParameter>> ZeroCheckpoint::read_groups() const {
  const auto& optimizer = files_.optimizers.front();
  const auto* held = zero_state(optimizer).find("param_alignment_paddings");
  const auto* paddings = held == nullptr ? nullptr : held->as<pickle::List>();
  Groups groups;
  for (const auto& shapes : held_in<pickle::List>(model(), model().root(), "param_shapes")) {
    auto& group = groups.emplace_back(read_group(model(), shapes));
    for (std::size_t number = 0; number < group.size(); ++number)
      group[number].padding = padding_of(optimizer, paddings, groups.size() - 1, number);
    for (auto& parameter : group) parameter.row = groups.size() - 1;
  }
  return groups;
}

void ZeroCheckpoint::read_rows() {
  const auto* key = stage() == kPiecesStage ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
  for (const auto& file : files_.optimizers) {
    auto& rows = rows_.emplace_back();
    for (const auto& value : held_in<pickle::List>(file, zero_state(file), key)) {
      const auto* tensor = value.as<pickle::Tensor>();
      if (tensor == nullptr) refuse_key(file, key, "a list of tensors", std::string(value.kind()));
      rows.push_back(elements_of(file, *tensor));
      if (rows.back().strided) refuse_key(file, key, "tensors without gaps", "one with gaps");
      if (!rows_.front().empty() && rows.back().dtype != rows_.front().front().dtype)
        refuse_key(file, key, "tensors of one element type", std::string(dtype_name(rows.back().dtype)));
    }
  }
}

// Refuses a copy of one rank's file in the place of another's, which would fit otherwise.
void ZeroCheckpoint::refuse_copies() const {
  const auto same = [](const StoredElements& a, const StoredElements& b) {
    return std::ranges::equal(a.runs.front(), b.runs.front());
  };
  const auto is_zero = [](const StoredElements& row) {
    return std::ranges::all_of(row.runs.front(), [](std::byte byte) { return byte == std::byte{}; });
  };
  for (std::size_t rank = 1; rank < rows_.size(); ++rank) {
    for (std::size_t other = 0; other < rank; ++other) {
      if (!std::ranges::equal(rows_[rank], rows_[other], same) || std::ranges::all_of(rows_[rank], is_zero))
        continue;
      refuse_key(files_.optimizers[rank], "its weights",
                 "other numbers than those of rank " + std::to_string(other),
                 "the same, as of a copy of that file");
    }
  }
}

void ZeroCheckpoint::find_runs(const std::vector<std::vector<ZeroParameter>>& groups) {
  for (const auto& group : groups) parameters_.insert(parameters_.end(), group.begin(), group.end());
  ZeroLengths lengths;
  for (const auto& rows : rows_) {
    auto& of_rank = lengths.emplace_back();
    for (const auto& row : rows) of_rank.push_back(length_of(row));
  }
  auto runs = stage() == kPiecesStage ? zero_runs_of_pieces(parameters_, lengths)
                                      : zero_runs_of_groups(groups, lengths);
  if (!runs)
    throw CheckpointError("checkpoint", {.what = "the files of DeepSpeed in " + files_.folder.string() +
                                                 " do not fit each other",
                                         .got = runs.error(),
                                         .hint = "were they all saved at the same step?"});
  runs_ = std::move(*runs);
}

StoredElements ZeroCheckpoint::weights_of(std::size_t number) const {
  StoredElements found;
  for (const auto& run : runs_.at(number)) {
    const auto& row = rows_[run.rank][run.row];
    const auto bytes = dtype_bytes(row.dtype);
    found.dtype = row.dtype;
    found.runs.push_back(row.runs.front().subspan(run.begin * bytes, run.elements * bytes));
  }
  return found;
}

namespace {

/// The number in a tensor of one element.
std::optional<double> number_of(const OpenedTorchFile& file, const pickle::Tensor& tensor) {
  const auto elements = elements_of(file, tensor);
  std::optional<double> number;
  write_as_float32(elements, [&](std::span<const std::byte> bytes) {
    if (as_float32(elements.dtype) != safetensors::Dtype::kF32 || bytes.size() != sizeof(float)) return;
    float value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    number = value;
  });
  return number;
}

const pickle::Dict* dict_in(const pickle::Dict& dict, const char* key) {
  const auto* value = dict.find(key);
  return value == nullptr ? nullptr : value->as<pickle::Dict>();
}

/// The steps of each row that contains them.
std::unordered_map<std::int64_t, double> steps_in(const OpenedTorchFile& file, int stage) {
  std::unordered_map<std::int64_t, double> steps;
  const auto* inner = dict_in(zero_state(file), inner_key(stage));
  const auto* state = inner == nullptr ? nullptr : dict_in(*inner, "state");
  if (state == nullptr) return steps;
  for (const auto& [number, row] : rows_in(*state))
    if (const auto step = number_in(file, row->find("step"))) steps.emplace(number, *step);
  return steps;
}

}  // namespace

std::optional<double> number_in(const OpenedTorchFile& file, const pickle::Value* value) {
  if (value == nullptr) return std::nullopt;
  if (const auto* real = value->as<double>()) return *real;
  if (const auto* integer = value->as<std::int64_t>()) return static_cast<double>(*integer);
  const auto* tensor = value->as<pickle::Tensor>();
  return tensor == nullptr ? std::nullopt : number_of(file, *tensor);
}

const char* inner_key(int stage) { return stage == 3 ? "optimizer_state_dict" : "base_optimizer_state"; }

std::unordered_map<std::int64_t, const pickle::Dict*> rows_in(const pickle::Dict& state) {
  std::unordered_map<std::int64_t, const pickle::Dict*> rows;
  for (const auto& [id, value] : state.entries) {
    const auto* number = id.as<std::int64_t>();
    const auto* held = value.as<pickle::Dict>();
    if (number != nullptr && held != nullptr) rows.try_emplace(*number, held);
  }
  return rows;
}

void check_steps(const ZeroFiles& files) {
  const auto& first = files.optimizers.front();
  const auto expected = steps_in(first, files.stage);
  for (const auto& file : files.optimizers) {
    for (const auto& [row, step] : steps_in(file, files.stage)) {
      const auto found = expected.find(row);
      if (found == expected.end() || found->second == step) continue;
      refuse_key(file, "step of row " + std::to_string(row),
                 "that of " + in_quotes(first.where()) + ", as all ranks save at once",
                 "another number: were the files all saved at the same step?");
    }
  }
}

}  // namespace lockstep::detail
