#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <string>

#include <lockstep/formats/tar.h>

#include "support/bytes.h"
#include "support/tar_text.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using test::bytes_of;
using test::tar_end;
using test::tar_member;
using test::text_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Files = std::vector<std::pair<std::string, std::string>>;

Files files(const std::string& archive) {
  Files files;
  tar::Reader reader(bytes_of(archive));
  for (;;) {
    const auto entry = reader.next();
    EXPECT_TRUE(entry) << entry.error();
    if (!entry || !*entry) return files;
    files.emplace_back((*entry)->name, text_of((*entry)->bytes));
  }
}

/// What stops the reading of `archive`.
template <class Reader = tar::Reader>
std::string failure(const std::string& archive) {
  Reader reader(bytes_of(archive));
  for (;;) {
    const auto next = reader.next();
    if (!next) {
      EXPECT_EQ(reader.next().error(), next.error());
      return next.error();
    }
    if (!*next) return "";
  }
}

TEST(Tar, GivesRegularFilesInOrder) {
  const auto archive = tar_member("a/", "", '5') + tar_member("a/x", "one") + tar_member("l", "", '2') +
                       tar_member("empty", "") + tar_member("b", std::string(513, 'z'));
  const Files expected{{"a/x", "one"}, {"empty", ""}, {"b", std::string(513, 'z')}};
  EXPECT_EQ(files(archive + tar_end()), expected);
  EXPECT_EQ(files(archive), expected);
  EXPECT_EQ(files(archive + tar_end() + "what follows is not looked at"), expected);
  EXPECT_TRUE(files(tar_end()).empty());
}

TEST(Tar, TakesChecksumsOfSignedBytes) {
  auto archive = tar_member("\xe9t\xe9", "x");
  constexpr std::size_t kChecksum = 148;
  const auto sum = std::stoul(archive.substr(kChecksum, 6), nullptr, 8);
  std::array<char, 8> digits{};
  std::snprintf(digits.data(), digits.size(), "%06lo", sum - 2 * 256);
  archive.replace(kChecksum, 6, digits.data());
  EXPECT_THAT(files(archive), ElementsAre(Pair("\xe9t\xe9", "x")));
  archive.replace(kChecksum, 6, "000123");
  EXPECT_THAT(failure(archive), HasSubstr("a damaged header"));
}

TEST(Tar, KnowsLongNames) {
  const std::string name = std::string(150, 'n') + ".txt";
  EXPECT_THAT(files(tar_member("././@LongLink", name + '\0', 'L') + tar_member(name, "x")),
              ElementsAre(Pair(name, "x")));
  EXPECT_THAT(
      files(tar_member("pax", "14 path=a/b.c\n", 'x') + tar_member("short", "abc") + tar_member("next", "d")),
      ElementsAre(Pair("a/b.c", "abc"), Pair("next", "d")));
  EXPECT_THAT(files(tar_member("pax", "10 size=3\n", 'x') + tar_member("p", "abc", '0', 0)),
              ElementsAre(Pair("p", "abc")));
}

TEST(Tar, ReadsWhatGnuTarAndPythonWrite) {
  const test::TemporaryFolder folder;
  const std::string make =
      "cd '" + folder.path().string() + "' && mkdir -p d && printf one > d/a.txt && printf two > " +
      std::string(120, 'b') + " && for f in gnu pax; do tar --format=$f -cf $f.tar d b*; done" +
      " && python3 -c \"import tarfile; t = tarfile.open('py.tar', 'w'); t.add('d/a.txt'); t.close()\"";
  ASSERT_EQ(std::system(make.c_str()), 0);
  for (const char* format : {"gnu", "pax"}) {
    EXPECT_THAT(files(test::content(folder / (format + std::string(".tar")))),
                ElementsAre(Pair("d/a.txt", "one"), Pair(std::string(120, 'b'), "two")));
  }
  EXPECT_THAT(files(test::content(folder / "py.tar")), ElementsAre(Pair("d/a.txt", "one")));
}

TEST(Tar, SaysWhatIsWrongAndWhere) {
  const auto good = tar_member("a", "one");
  EXPECT_THAT(failure(good + "short"), HasSubstr("within a header at byte 1024"));
  EXPECT_THAT(failure(good + tar_member("b", "two").substr(0, 700)),
              HasSubstr("cut short behind the file at byte 1024"));
  EXPECT_THAT(failure(good + tar_member("b", "two").substr(0, 514)),
              HasSubstr("within the file at byte 1024"));
  auto damaged = good;
  damaged[3] = 'x';
  EXPECT_THAT(failure(good + damaged), HasSubstr("damaged header at byte 1024"));
  EXPECT_THAT(failure(tar_member("b", "", '0', 1LL << 32)), HasSubstr("within the file at byte 0"));
  EXPECT_THAT(failure(tar_member("p", "99 path=x\n", 'x') + good), HasSubstr("pax records at byte 0"));
  EXPECT_THAT(failure(tar_member("p", "8 size=x\n", 'x') + good), HasSubstr("pax records at byte 0"));
  EXPECT_THAT(failure(tar_member("s", "", 'S')), HasSubstr("sparse"));
  EXPECT_THAT(failure(good + tar_member("p", "22 GNU.sparse.major=1\n", 'x') + tar_member("s", "1\n0\n")),
              HasSubstr("a sparse file, which is not read"));
  EXPECT_THAT(failure(""), HasSubstr("an empty file"));
  EXPECT_THAT(failure("\x1f\x8b" + std::string(600, 'x')), HasSubstr("compressed with gzip"));
  EXPECT_EQ(failure(tar_member("<html>", "x") + tar_end()), "");
}

TEST(TarSamples, GroupsFilesByKey) {
  const auto archive = tar_member("d/0.JPG", "j0") + tar_member("d/0.seg.png", "s0") +
                       tar_member("README", "") + tar_member("__meta__", "m") +
                       tar_member("__meta__/0.json", "m") + tar_member("d/0.cls", "c0") +
                       tar_member("d/1.jpg", "j1") + tar_member("e/1.jpg", "e1") + tar_end();
  tar::SampleReader reader(bytes_of(archive));
  std::vector<std::string> samples;
  while (const auto sample = reader.next().value_or(std::nullopt)) {
    std::string text = sample->key + "@" + std::to_string(sample->offset);
    for (const auto& field : sample->fields) text += " " + field.extension + "=" + text_of(field.bytes);
    samples.push_back(text);
  }
  EXPECT_THAT(samples, ElementsAre("d/0@0 jpg=j0 seg.png=s0 cls=c0", "d/1@5632 jpg=j1", "e/1@6656 jpg=e1"));
}

TEST(TarSamples, RefusesTwoFilesOfOneKind) {
  const auto archive = tar_member("0.jpg", "a") + tar_member("0.JPG", "b");
  EXPECT_THAT(failure<tar::SampleReader>(archive), HasSubstr("two files '0.JPG', the second at byte 1024"));
  EXPECT_THAT(failure<tar::SampleReader>(tar_member("0.jpg", "a") + "cut"), HasSubstr("at byte 1024"));
}

}  // namespace
}  // namespace lockstep
