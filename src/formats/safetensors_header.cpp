#include "formats/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/formats/safetensors.h>

namespace lockstep::safetensors::detail {
namespace {

/// Follows the grammar
///     {"__metadata__": {key: string, ...}, name: {"dtype": string, "shape": [n, ...],
///      "data_offsets": [begin, end]}, ...}
/// token by token: anything else stops the parser at once, so no tree is ever built.
class HeaderSax final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Header& header() { return header_; }
  const std::string& reason() const { return reason_; }

  /// As the library in Rust, which some programs let write null where there is no metadata.
  bool null() override { return (state_ == State::kRoot && name_ == "__metadata__") || unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::kNumbers) return unexpected("a number");
    numbers_->push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::kMetadata) {
      header_.metadata[field_] = std::move(value);
    } else if (state_ == State::kTensor && field_ == "dtype") {
      header_.entries.back().dtype = std::move(value);
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (state_ == State::kStart) {
      state_ = State::kRoot;
    } else if (state_ == State::kRoot && name_ == "__metadata__") {
      state_ = State::kMetadata;
    } else if (state_ == State::kRoot) {
      state_ = State::kTensor;
      header_.entries.push_back({.name = name_, .dtype = {}, .shape = {}, .data_offsets = {}});
    } else {
      return unexpected("an object");
    }
    fields_.clear();
    return true;
  }

  bool key(string_t& key) override {
    if (state_ == State::kRoot) {
      name_ = std::move(key);
      return names_.insert(name_).second || fail("name " + shown(name_) + " occurs twice");
    }
    field_ = std::move(key);
    if (state_ == State::kTensor && field_ != "dtype" && field_ != "shape" && field_ != "data_offsets") {
      return fail("unknown key " + shown(field_) + " in tensor " + shown(name_));
    }
    return fields_.insert(field_).second || fail("key " + shown(field_) + " occurs twice in " + shown(name_));
  }

  bool start_array(std::size_t) override {
    if (state_ != State::kTensor || field_ == "dtype") return unexpected("a list");
    state_ = State::kNumbers;
    HeaderEntry& entry = header_.entries.back();
    numbers_ = field_ == "shape" ? &entry.shape : &entry.data_offsets;
    return true;
  }

  bool end_array() override {
    state_ = State::kTensor;
    return true;
  }

  bool end_object() override {
    if (state_ == State::kTensor && fields_.size() != 3) {
      return fail("tensor " + shown(name_) + " lacks one of dtype, shape and data_offsets");
    }
    state_ = State::kRoot;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return fail("header is no JSON at byte " + std::to_string(position));
  }

 private:
  enum class State { kStart, kRoot, kMetadata, kTensor, kNumbers };

  bool fail(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  bool unexpected(const char* what) {
    return fail(std::string("unexpected ") + what +
                (name_.empty() ? " in the header" : " in " + shown(name_)));
  }

  State state_ = State::kStart;
  std::string name_;   // of the tensor, or __metadata__
  std::string field_;  // key inside it
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> fields_;
  std::vector<std::uint64_t>* numbers_ = nullptr;
  Header header_;
  std::string reason_;
};

}  // namespace

Expected<Header> parse_header(std::string_view json) {
  HeaderSax sax;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &sax)) return Unexpected{sax.reason()};
  return std::move(sax.header());
}

std::string shown(std::string_view name) {
  constexpr std::size_t kShown = 80;
  return "'" + std::string(name.substr(0, kShown)) + (name.size() > kShown ? "...'" : "'");
}

}  // namespace lockstep::safetensors::detail

namespace lockstep::safetensors {
namespace {

struct Row {
  Dtype dtype;
  std::string_view name;
  std::size_t bytes;
};

// In the order of the enumeration, so that a dtype is the index of its row.
constexpr std::array kRows{Row{Dtype::kC64, "C64", 8},
                           Row{Dtype::kF64, "F64", 8},
                           Row{Dtype::kF32, "F32", 4},
                           Row{Dtype::kF16, "F16", 2},
                           Row{Dtype::kBF16, "BF16", 2},
                           Row{Dtype::kF8E4M3, "F8_E4M3", 1},
                           Row{Dtype::kF8E5M2, "F8_E5M2", 1},
                           Row{Dtype::kF8E8M0, "F8_E8M0", 1},
                           Row{Dtype::kI64, "I64", 8},
                           Row{Dtype::kI32, "I32", 4},
                           Row{Dtype::kI16, "I16", 2},
                           Row{Dtype::kI8, "I8", 1},
                           Row{Dtype::kU64, "U64", 8},
                           Row{Dtype::kU32, "U32", 4},
                           Row{Dtype::kU16, "U16", 2},
                           Row{Dtype::kU8, "U8", 1},
                           Row{Dtype::kBool, "BOOL", 1},
                           Row{Dtype::kF4x2, "F4", 1},
                           Row{Dtype::kC128, "C128", 16},
                           Row{Dtype::kC32, "C32", 4},
                           Row{Dtype::kF8E4M3FNUZ, "F8_E4M3FNUZ", 1},
                           Row{Dtype::kF8E5M2FNUZ, "F8_E5M2FNUZ", 1}};

consteval bool rows_follow_the_enumeration() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<std::size_t>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_follow_the_enumeration());

}  // namespace

std::string_view dtype_name(Dtype dtype) { return kRows[static_cast<std::size_t>(dtype)].name; }

std::size_t dtype_bytes(Dtype dtype) { return kRows[static_cast<std::size_t>(dtype)].bytes; }

bool is_of_format(Dtype dtype) { return dtype <= Dtype::kF4x2; }

std::optional<Dtype> dtype_named(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace lockstep::safetensors

namespace lockstep::detail {
namespace {

using safetensors::Dtype;

constexpr TorchDtype kRows[] = {
    {Dtype::kC64, "torch.complex64", "torch.ComplexFloatStorage"},
    {Dtype::kF64, "torch.float64", "torch.DoubleStorage"},
    {Dtype::kF32, "torch.float32", "torch.FloatStorage"},
    {Dtype::kF16, "torch.float16", "torch.HalfStorage"},
    {Dtype::kBF16, "torch.bfloat16", "torch.BFloat16Storage"},
    {Dtype::kF8E4M3, "torch.float8_e4m3fn", ""},
    {Dtype::kF8E5M2, "torch.float8_e5m2", ""},
    {Dtype::kF8E8M0, "torch.float8_e8m0fnu", ""},
    {Dtype::kI64, "torch.int64", "torch.LongStorage"},
    {Dtype::kI32, "torch.int32", "torch.IntStorage"},
    {Dtype::kI16, "torch.int16", "torch.ShortStorage"},
    {Dtype::kI8, "torch.int8", "torch.CharStorage"},
    {Dtype::kU64, "torch.uint64", ""},
    {Dtype::kU32, "torch.uint32", ""},
    {Dtype::kU16, "torch.uint16", ""},
    {Dtype::kU8, "torch.uint8", "torch.ByteStorage"},
    {Dtype::kBool, "torch.bool", "torch.BoolStorage"},
    {Dtype::kF4x2, "torch.float4_e2m1fn_x2", ""},
    {Dtype::kC128, "torch.complex128", "torch.ComplexDoubleStorage"},
    {Dtype::kC32, "torch.complex32", ""},
    {Dtype::kF8E4M3FNUZ, "torch.float8_e4m3fnuz", ""},
    {Dtype::kF8E5M2FNUZ, "torch.float8_e5m2fnuz", ""},
};

}  // namespace

std::span<const TorchDtype> torch_dtypes() { return kRows; }

std::optional<Dtype> named_torch_dtype(std::string_view name) {
  const auto* row = std::ranges::find(kRows, name, &TorchDtype::name);
  return row == std::end(kRows) ? std::nullopt : std::optional(row->dtype);
}

const TorchDtype& torch_dtype(Dtype dtype) { return *std::ranges::find(kRows, dtype, &TorchDtype::dtype); }

}  // namespace lockstep::detail
