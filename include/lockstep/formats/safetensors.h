// The safetensors file format: named tensors as raw bytes behind a JSON header.
// https://huggingface.co/docs/safetensors
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/formats/mapped_file.h>

namespace lockstep::safetensors {

/// What an element is: first those of the format, then those that only PyTorch has.
enum class Dtype {
  kC64,         ///< two float32: real and imaginary part
  kF64,         ///< float64
  kF32,         ///< float32
  kF16,         ///< float16
  kBF16,        ///< bfloat16
  kF8E4M3,      ///< float8_e4m3fn
  kF8E5M2,      ///< float8_e5m2
  kF8E8M0,      ///< float8_e8m0fnu
  kI64,         ///< int64
  kI32,         ///< int32
  kI16,         ///< int16
  kI8,          ///< int8
  kU64,         ///< uint64
  kU32,         ///< uint32
  kU16,         ///< uint16
  kU8,          ///< uint8
  kBool,        ///< bool, one byte
  kF4x2,        ///< two elements of F4, which are a pair for PyTorch: its shape has half of the last extent
  kC128,        ///< two float64
  kC32,         ///< two float16
  kF8E4M3FNUZ,  ///< float8_e4m3fnuz
  kF8E5M2FNUZ   ///< float8_e5m2fnuz
};

/// The format's name of a dtype: "F32". Those that it has not are named alike: "C128".
LOCKSTEP_API std::string_view dtype_name(Dtype dtype);

/// The dtype of that name, or nothing when there is none such (or one that we do not know).
LOCKSTEP_API std::optional<Dtype> dtype_named(std::string_view name);

/// Whether the format has it.
LOCKSTEP_API bool is_of_format(Dtype dtype);

/// Bytes of one element.
LOCKSTEP_API std::size_t dtype_bytes(Dtype dtype);

/// One tensor. Does not own the bytes: row-major, little-endian, not necessarily aligned.
struct TensorView {
  std::string name;                  ///< of the tensor
  Dtype dtype = Dtype::kF32;         ///< what an element is
  std::vector<std::int64_t> shape;   ///< empty for a scalar
  std::span<const std::byte> bytes;  ///< of the mapped file
};

/// Free text by key, as in {"format", "pt"}.
using Metadata = std::map<std::string, std::string>;

/// What the header of a file describes.
struct Contents {
  std::vector<TensorView> tensors;  ///< in the header's order
  Metadata metadata;                ///< texts by name
};

/// Longest header that is read: that of the format's own implementation.
inline constexpr std::size_t kMaxHeaderBytes = 100'000'000;

/// Reads the header of `file`, the bytes of a whole file; the views point into it. Strict: the tensors
/// must fill the data section without hole or overlap, and no name may occur twice. Never throws for
/// bad input; the reason says what is wrong and for which tensor.
LOCKSTEP_API Expected<Contents> parse(std::span<const std::byte> file);

/// An open file: its tensors, by name, without copying them. Views stay valid as long as the File.
class LOCKSTEP_API File {
 public:
  /// @throws IoError when the file cannot be read; CheckpointError when it is no safetensors file
  explicit File(const std::filesystem::path& path);

  /// Like the constructor, but a file that can be read and is no safetensors file gives the reason.
  /// @throws IoError when the file cannot be read
  static Expected<File> open(const std::filesystem::path& path);

  /// The tensors, in the order of the file.
  const std::vector<TensorView>& tensors() const { return contents_.tensors; }
  /// The texts that the file has by name.
  const Metadata& metadata() const { return contents_.metadata; }
  /// The file.
  const std::filesystem::path& path() const { return path_; }

  /// The tensor of that name, or nullptr.
  const TensorView* find(std::string_view name) const;
  /// @throws CheckpointError naming the file and some of the names that it has
  const TensorView& at(std::string_view name) const;
  /// The names for an error's text, quoted; only the first ones when there are many.
  std::string listed_names() const;

 private:
  File(std::filesystem::path path, MappedFile mapping, Contents contents);

  std::filesystem::path path_;
  MappedFile mapping_;
  Contents contents_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

/// Writes `tensors` to `path`, listed in the given order; complete or not at all (see atomic_file.h).
/// The data lie by falling element size, so that every tensor is aligned, as PyTorch's reader demands.
/// Blocking.
/// @throws CheckpointError naming the tensor: a name twice, not UTF-8 or reserved, bytes that do not
///     fit shape and dtype; IoError
LOCKSTEP_API void write(const std::filesystem::path& path, std::span<const TensorView> tensors,
                        const Metadata& metadata = {});

}  // namespace lockstep::safetensors
