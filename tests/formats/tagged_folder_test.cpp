// Which checkpoint a folder stands for.
#include "formats/checkpoint_folders.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include <lockstep/base/error.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

TEST(TaggedFolder, IsItselfWhereLatestWasLeftOverBesideWeights) {
  for (const auto* name : {"model.safetensors", "model.safetensors.index.json", "manifest.json"}) {
    const test::TemporaryFolder folder;
    (void)folder.file("latest", "global_step500");
    const auto look = [&] { return tagged_folder(folder.path()); };
    expect_error<CheckpointError>([&] { (void)look(); }, {"latest", "'global_step500'", "not there"});
    (void)folder.file(name, "x");
    EXPECT_EQ(look(), folder.path()) << name;
    fs::create_directory(folder / "global_step500");
    EXPECT_EQ(look(), folder / "global_step500") << name;
  }
}

// Not a run that begins.
TEST(TaggedFolder, IsRefusedWhereLatestCannotBeRead) {
  const test::TemporaryFolder linked, nested, piped;
  ASSERT_EQ(::mkfifo((piped / "latest").c_str(), 0600), 0);
  fs::create_symlink("gone", linked / "latest");
  fs::create_directory(nested / "latest");
  for (const auto* folder : {&linked, &nested, &piped})
    expect_error<IoError>([&] { (void)latest_tag(folder->path()); }, {"latest", "cannot be read"});
  EXPECT_EQ(latest_tag(linked / "empty"), std::nullopt);
}

TEST(TaggedFolder, IsThereWhenItWasMovedAside) {
  const test::TemporaryFolder folder;
  (void)folder.file("latest", "global_step3");
  const auto aside = new_sibling(folder / "global_step3", kOlder);
  fs::create_directory(aside);
  const auto look = [&] { return tagged_folder(folder.path()); };
  expect_error<CheckpointError>([&] { (void)look(); }, {"'global_step3'", "not there"});  // no complete one
  std::ofstream(aside / "manifest.json") << "{}";
  EXPECT_EQ(look(), folder / "global_step3");
  EXPECT_EQ(place_of_checkpoint(look()), aside);
}

TEST(TaggedFolder, HasAName) {
  const test::TemporaryFolder folder;
  fs::create_directory(folder / "other.ckpt");
  (void)folder.file("manifest.json", "{}");
  const auto before = fs::current_path();
  fs::current_path(folder.path());
  EXPECT_TRUE(siblings("", kOlder).empty());
  fs::current_path(before);
  expect_error<ConfigError>([] { (void)tagged_folder(""); }, {"name", "is empty", "unset"});
}

TEST(TaggedFolder, HasNoBlanksAtItsEnds) {
  for (const auto* tag : {" a", "a ", "a\n", "\ta", "\v", "a/b", "..", ""}) EXPECT_FALSE(is_tag(tag)) << tag;
  EXPECT_TRUE(is_tag("of three"));
  const test::TemporaryFolder folder;
  fs::create_directory(folder / "a ");
  expect_error<ConfigError>([&] { (void)tagged_folder(folder.path(), "a "); }, {"tag", "'a '"});
}

}  // namespace
}  // namespace lockstep::detail
