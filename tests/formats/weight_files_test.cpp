// Folders of weights that are written, and what is left of those that were not.
#include "formats/weight_files.h"

#include <gmock/gmock.h>

#include <fstream>

#include <lockstep/base/error.h>

#include "base/folder_lock.h"
#include "formats/checkpoint_folders.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::array kFour{1.0F, 2.0F, 3.0F, 4.0F};

/// Writes `folder` with one tensor.
void write(const fs::path& folder) {
  const StoredTensorView tensor{
      .name = "w", .shape = {4}, .elements = {.runs = {std::as_bytes(std::span(kFour))}}};
  write_sharded(folder, std::span(&tensor, 1), 1'000);
}

TEST(WriteSharded, FollowsALinkToAnEmptyFolder) {
  const test::TemporaryFolder folder;
  fs::create_directory(folder / "there");
  fs::create_directory_symlink("there", folder / "link");
  write(folder / "link");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_TRUE(fs::exists(folder / "there" / "model.safetensors"));
  EXPECT_EQ(folder.entries(), 2);  // and no draft
}

TEST(WriteSharded, SaysWhatItCannotRename) {
  const test::TemporaryFolder folder;
  fs::create_directory_symlink("nowhere", folder / "link");
  const auto expect_refused = [&] {
    test::expect_error<IoError>([&] { write(folder / "link"); },
                                {(folder / "link").string(), "is not written"});
  };
  expect_refused();
  EXPECT_EQ(folder.entries(), 1);
}

TEST(WriteSharded, RemovesDraftsOfTheDead) {
  const test::TemporaryFolder folder;
  const auto dead = new_sibling(folder / "out", kDraft), alive = new_sibling(folder / "out", kDraft);
  fs::create_directory(dead);
  std::ofstream(dead / "model.safetensors") << "x";
  const auto lock = make_locked_folder(alive);
  ASSERT_TRUE(lock);
  write(folder / "out/");
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(alive));
  EXPECT_TRUE(fs::exists(folder / "out" / "model.safetensors"));
}

}  // namespace
}  // namespace lockstep::detail
