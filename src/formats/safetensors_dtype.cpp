#include <array>
#include <cstddef>

#include <lockstep/formats/safetensors.h>

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
