#include <gmock/gmock.h>
#include <torch/torch.h>

#include <lockstep/base/error.h>
#include <lockstep/data/batch_generator.h>
#include <lockstep/data/image_folder.h>
#include <lockstep/data/loader.h>

#include "data/recorder.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using test::batches_of;
using test::expect_error;
using test::Indices;
using test::TemporaryFolder;
using ::testing::ElementsAre;

/// A picture of one grey value.
std::string picture(int width, int height, char value) {
  return "P5 " + std::to_string(width) + " " + std::to_string(height) + " 255 " +
         std::string(static_cast<std::size_t>(width * height), value);
}

class ImageFolderTest : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& content) {
    std::filesystem::create_directories((folder_ / path).parent_path());
    folder_.file(path, content);
  }
  const std::filesystem::path root() const { return folder_.path(); }

  TemporaryFolder folder_;
};

TEST_F(ImageFolderTest, SortsClassesAndPictures) {
  put("dog/2.pgm", picture(2, 1, 'd'));
  put("cat/b/1.PGM", picture(2, 1, 'b'));
  put("cat/a.ppm", "P6 2 1 255 abcdef");
  put("cat/notes.txt", "no picture");
  put("README", "");
  const auto images = image_folder(root());
  EXPECT_THAT(images->classes(), ElementsAre("cat", "dog"));
  ASSERT_EQ(images->size(), 3);
  EXPECT_EQ(images->path(0), root() / "cat/a.ppm");
  EXPECT_EQ(images->path(1), root() / "cat/b/1.PGM");
  EXPECT_EQ(images->target(2), 1);
  const Example batch = images->get_batch(Indices{2, 0});
  EXPECT_TRUE(batch.target.equal(torch::tensor({1, 0}, torch::kLong)));
  EXPECT_EQ(batch.data.sizes(), (at::IntArrayRef{2, 3, 1, 2}));
  EXPECT_EQ(batch.data.scalar_type(), torch::kByte);
  EXPECT_TRUE(batch.data[1].flatten().equal(
      torch::tensor({int('a'), int('d'), int('b'), int('e'), int('c'), int('f')}, torch::kByte)));
  const auto grey = image_folder(root(), {.image = {.mode = ImageMode::kGray}});
  EXPECT_EQ(grey->get_batch(Indices{2}).data.sizes(), (at::IntArrayRef{1, 1, 1, 2}));
}

TEST_F(ImageFolderTest, TransformsTheSameWhateverTheWorkers) {
  for (char i = 'a'; i < 'k'; ++i) put("x/" + std::string(1, i) + ".pgm", picture(3, 3, i));
  const auto images = image_folder(root(), {.transform = [](const at::Tensor& picture) {
                                     return picture.to(torch::kFloat) * torch::rand({1}, batch_generator());
                                   }});
  const auto expected = batches_of(loader(images, {.batch_size = 3, .shuffle = true}), 2);
  for (const std::int64_t skip : {0, 2}) {
    const auto actual =
        batches_of(loader(images, {.batch_size = 3, .shuffle = true, .num_workers = 2}), 2, {}, skip);
    ASSERT_EQ(actual.size(), expected.size() - static_cast<std::size_t>(skip));
    for (std::size_t i = 0; i < actual.size(); ++i)
      EXPECT_TRUE(actual[i].data.equal(expected[i + static_cast<std::size_t>(skip)].data));
  }
}

TEST_F(ImageFolderTest, NamesWhatIsWrong) {
  expect_error<DataError>([&] { image_folder(root() / "none"); }, {"none", "No such file"});
  expect_error<DataError>([&] { image_folder(root()); }, {"no classes"});
  put("a/1.pgm", picture(2, 1, 'x'));
  put("a/2.pgm", picture(1, 2, 'y'));
  put("a/3.pgm", "P5 9 9 255 cut");
  put("a/4.gif.png", "GIF");
  const auto images = image_folder(root());
  expect_error<DataError>(
      [&] {
        images->get_batch(Indices{0, 1});
      },
      {"2.pgm", "1.pgm", "3 x 1 x 2", "3 x 2 x 1"});
  expect_error<DataError>([&] { images->get_batch(Indices{2}); }, {"3.pgm", "3 of 81 bytes"});
  expect_error<DataError>([&] { images->get_batch(Indices{3}); }, {"4.gif.png", "neither PNG"});
  expect_error<DataError>([&] { images->get_batch(Indices{4}); }, {"index 4"});
  std::filesystem::create_directory(root() / "empty");
  expect_error<DataError>([&] { image_folder(root()); }, {"empty", "without pictures"});
}

TEST_F(ImageFolderTest, LeavesNoPictureOutInSilence) {
  put("a/1.pgm", picture(2, 1, 'x'));
  put("a/.DS_Store", "");
  std::filesystem::create_symlink("gone", root() / "a/.#1.pgm");
  EXPECT_EQ(image_folder(root())->size(), 1);
  for (const auto* name : {"2.bmp", "2.TIF", "2.tiff", "2.webp"}) {
    const auto path = root() / "a" / name;
    put("a/" + std::string(name), "BM");
    expect_error<DataError>([&] { image_folder(root()); }, {name, "PNG, JPEG", "convert it"});
    std::filesystem::remove(path);
  }
  for (const auto* link : {"a/2.pgm", "b"}) {
    std::filesystem::create_symlink("gone.pgm", root() / link);
    expect_error<DataError>([&] { image_folder(root()); }, {"broken link", link, "gone.pgm"});
    std::filesystem::remove(root() / link);
  }
}

}  // namespace
}  // namespace lockstep
