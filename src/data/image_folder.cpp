#include <lockstep/data/image_folder.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <lockstep/base/error.h>
#include <lockstep/formats/mapped_file.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Together they are torchvision's IMG_EXTENSIONS.
constexpr std::array<std::string_view, 5> kRead{".jpeg", ".jpg", ".pgm", ".png", ".ppm"};
constexpr std::array<std::string_view, 4> kNotRead{".bmp", ".tif", ".tiff", ".webp"};

template <class Extensions>
bool is_named(const fs::path& path, const Extensions& extensions) {
  std::string extension = path.extension().string();
  for (char& letter : extension) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return std::ranges::find(extensions, extension) != extensions.end();
}

[[noreturn]] void refuse(const std::string& what, const fs::path& path, std::string got) {
  throw DataError("data", {.what = what + " '" + path.string() + "'", .got = std::move(got)});
}

// Hidden links are ignored: some editors use one to lock a file.
void check_link(const fs::directory_entry& entry) {
  const bool is_broken = entry.is_symlink() && !entry.exists();
  if (!is_broken || entry.path().filename().string().starts_with('.')) return;
  refuse("a broken link among the pictures:", entry.path(),
         "a link to '" + fs::read_symlink(entry.path()).string() + "', which is not there");
}

void check_format(const fs::path& picture) {
  if (!is_named(picture, kNotRead)) return;
  throw DataError("data", {.what = "cannot read the picture '" + picture.string() + "'",
                           .expected = "PNG, JPEG, PPM or PGM",
                           .got = "a name that ends with " + picture.extension().string(),
                           .hint = "convert it to PNG, or move it out of the folder"});
}

/// The entries of `Iterator` for which `take` returns true, sorted.
template <class Iterator, class Take>
std::vector<fs::path> sorted_paths(const fs::path& folder, Take take) try {
  std::vector<fs::path> paths;
  for (const auto& entry : Iterator(folder, fs::directory_options::follow_directory_symlink)) {
    if (take(entry)) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
} catch (const fs::filesystem_error& error) {
  refuse("cannot read the folder", folder, error.code().message());
}

at::Tensor read_picture(const fs::path& path, const ImageOptions& options) try {
  const MappedFile file(path);
  const auto image = decode_image(file.bytes(), options);
  if (!image) refuse("cannot decode the picture", path, image.error());
  return tensor_of(*image);
} catch (const IoError& error) {
  refuse("cannot read the picture", path, error.what());
}

std::string extents_of(const at::Tensor& tensor) {
  std::string text;
  for (const auto extent : tensor.sizes()) text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text;
}

}  // namespace

at::Tensor tensor_of(const Image& image) {
  at::Tensor tensor = at::empty({image.channels, image.height, image.width}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), image.pixels.data(), image.pixels.size());
  return tensor;
}

ImageFolder::ImageFolder(const fs::path& folder, ImageFolderOptions options) : options_(std::move(options)) {
  const auto is_folder = [](const fs::directory_entry& entry) {
    check_link(entry);
    return entry.is_directory();
  };
  for (const auto& sub : sorted_paths<fs::directory_iterator>(folder, is_folder)) add_class(sub);
  if (classes_.empty()) refuse("no classes in", folder, "no sub-folder");
}

void ImageFolder::add_class(const fs::path& folder) {
  const auto is_file = [](const fs::directory_entry& entry) {
    check_link(entry);
    return entry.is_regular_file() && (is_named(entry.path(), kRead) || is_named(entry.path(), kNotRead));
  };
  auto paths = sorted_paths<fs::recursive_directory_iterator>(folder, is_file);
  std::ranges::for_each(paths, check_format);
  if (paths.empty()) refuse("a class without pictures:", folder, "no file with a name of a picture");
  const auto number = static_cast<std::int64_t>(classes_.size());
  classes_.push_back(folder.filename().string());
  for (auto& path : paths) files_.push_back({.path = std::move(path), .target = number});
}

Example ImageFolder::get_batch(std::span<const std::int64_t> indices) const {
  detail::check_indices(indices, size());
  std::vector<at::Tensor> samples;
  at::Tensor targets = at::empty({static_cast<std::int64_t>(indices.size())}, at::kLong);
  auto* target = targets.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    const at::Tensor picture = read_picture(path(index), options_.image);
    samples.push_back(options_.transform ? options_.transform(picture) : picture);
    *target++ = this->target(index);
    if (samples.back().sizes() == samples[0].sizes()) continue;
    throw DataError("data", {.what = "the sample of '" + path(index).string() + "' differs in shape from '" +
                                     path(indices[0]).string() + "' in the same batch",
                             .expected = extents_of(samples[0]),
                             .got = extents_of(samples.back()),
                             .hint = "let transform bring them to one size"});
  }
  return {.data = at::stack(samples), .target = targets};
}

std::shared_ptr<const ImageFolder> image_folder(const fs::path& folder, ImageFolderOptions options) {
  return std::make_shared<ImageFolder>(folder, std::move(options));
}

}  // namespace lockstep
