// Pictures sorted into folders, one for each class: torchvision's ImageFolder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/data/dataset.h>
#include <lockstep/formats/image.h>

namespace lockstep {

/// How ImageFolder makes samples.
struct ImageFolderOptions {
  ImageOptions image = {};  ///< channels; RGB by default
  /// Makes a sample of a picture, uint8 [channels, height, width]; called by several threads at once, with
  /// batch_generator() for its random numbers. None: the picture itself.
  std::function<at::Tensor(const at::Tensor& picture)> transform = nullptr;
};

/// The pictures of FOLDER/CLASS/..., in the order of their paths. Classes are the sub-folders, sorted by name
/// and numbered from 0; pictures are files that end in .png, .jpg, .jpeg, .ppm or .pgm, in upper or lower
/// case, however deep; .bmp, .tif, .tiff, .webp and broken links are refused. `data` is the samples stacked,
/// `target` int64 the numbers of their classes.
class LOCKSTEP_API ImageFolder final : public Dataset<Example> {
 public:
  /// @throws DataError naming the folder that does not exist or cannot be read, that has no sub-folder, a
  ///     class without a picture, a picture of a format that is not read, or a broken link
  explicit ImageFolder(const std::filesystem::path& folder, ImageFolderOptions options = {});

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  /// Reads and decodes. @throws DataError naming the picture that cannot be read or decoded, or whose sample
  /// has another shape than the first of the batch
  Example get_batch(std::span<const std::int64_t> indices) const override;

  /// Names of the classes, by number.
  const std::vector<std::string>& classes() const { return classes_; }
  /// The file of sample `index`, and its class.
  const std::filesystem::path& path(std::int64_t index) const { return at(index).path; }
  /// The class of a sample, without reading its image.
  std::int64_t target(std::int64_t index) const { return at(index).target; }

 private:
  struct File {
    std::filesystem::path path;
    std::int64_t target;
  };
  const File& at(std::int64_t index) const { return files_[static_cast<std::size_t>(index)]; }
  void add_class(const std::filesystem::path& folder);

  ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
};

/// An ImageFolder, to be passed on.
LOCKSTEP_API std::shared_ptr<const ImageFolder> image_folder(const std::filesystem::path& folder,
                                                             ImageFolderOptions options = {});

/// A decoded picture as a tensor: uint8 [channels, height, width], with memory of its own.
LOCKSTEP_API at::Tensor tensor_of(const Image& image);

}  // namespace lockstep
