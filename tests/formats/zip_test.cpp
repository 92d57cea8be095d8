#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include <zlib.h>

#include <lockstep/formats/zip_archive.h>

#include "formats/zip_records.h"
#include "support/bytes.h"

namespace lockstep::zip {
namespace {

using test::bytes_of;
using test::text_of;
using ::testing::HasSubstr;
using Files = std::vector<std::pair<std::string, std::string>>;

std::string archive_of(const Files& files, const WriterOptions& options = {}) {
  std::string archive;
  Writer writer([&](std::span<const std::byte> bytes) { archive += text_of(bytes); }, options);
  for (const auto& [name, text] : files) writer.add(name, text);
  writer.finish();
  return archive;
}

const Files kTwo{{"a/data.pkl", "some text"}, {"a/data/0", std::string(100, 'x')}};

void expect_two(const std::string& file) {
  const auto archive = Archive::parse(bytes_of(file));
  ASSERT_TRUE(archive) << archive.error();
  ASSERT_EQ(archive->entries().size(), 2u);
  for (const auto& [name, text] : kTwo) {
    const auto bytes = archive->read(name);
    ASSERT_TRUE(bytes) << bytes.error();
    EXPECT_EQ(text_of(*bytes), text);
  }
}

void expect_reason(const std::string& file, const std::string& reason) {
  const auto archive = Archive::parse(bytes_of(file));
  ASSERT_FALSE(archive) << "accepted; expected: " << reason;
  EXPECT_THAT(archive.error(), HasSubstr(reason));
}

/// A copy of `file` in which the record of type T that stands at `offset` was changed.
template <class T, class Change>
std::string changed(std::string file, std::size_t offset, Change change) {
  T record;
  std::memcpy(&record, file.data() + offset, sizeof(T));
  EXPECT_EQ(record.signature, T::kSignature);
  change(record);
  std::memcpy(file.data() + offset, &record, sizeof(T));
  return file;
}

template <class Change>
std::string with_end(const std::string& file, Change change) {
  return changed<detail::End>(file, file.size() - sizeof(detail::End), change);
}

/// Changes the entry of the directory that comes first.
template <class Change>
std::string with_entry(const std::string& file, Change change) {
  detail::End end;
  std::memcpy(&end, file.data() + file.size() - sizeof(end), sizeof(end));
  return changed<detail::DirectoryEntry>(file, end.directory, change);
}

TEST(Zip, GivesBackWhatWasWritten) {
  expect_two(archive_of(kTwo));
  expect_two(archive_of(kTwo, {.alignment = 1}));
  const auto none = Archive::parse(bytes_of(archive_of({})));
  ASSERT_TRUE(none) << none.error();
  EXPECT_TRUE(none->entries().empty());
}

TEST(Zip, AlignsData) {
  const auto file = archive_of(kTwo, {.alignment = 64});
  const auto archive = Archive::parse(bytes_of(file));
  for (const auto& entry : archive->entries()) {
    EXPECT_EQ((entry.bytes.data() - bytes_of(file).data()) % 64, 0) << entry.name;
  }
}

TEST(Zip, WritesAndReadsNumbersOf64Bits) {
  for (const std::uint64_t from : {0, 10, 100, 200}) expect_two(archive_of(kTwo, {.zip64_from = from}));
  EXPECT_THAT(archive_of(kTwo, {.zip64_from = 0}), HasSubstr("PK\x06\x06"));
  EXPECT_THAT(archive_of(kTwo), Not(HasSubstr("PK\x06\x06")));
}

TEST(Zip, CountsMoreEntriesThan16BitsHold) {
  Files many;
  for (int i = 0; i < 70'000; ++i) many.emplace_back(std::to_string(i), "");
  const auto file = archive_of(many, {.alignment = 1});
  const auto archive = Archive::parse(bytes_of(file));
  ASSERT_TRUE(archive) << archive.error();
  EXPECT_EQ(archive->entries().size(), 70'000u);
  EXPECT_NE(archive->find("69999"), nullptr);
}

TEST(Zip, FindsDamage) {
  auto file = archive_of(kTwo);
  file[file.find("some text")] = 'S';
  const auto archive = Archive::parse(bytes_of(file));
  ASSERT_TRUE(archive) << archive.error();
  EXPECT_THAT(archive->read("a/data.pkl").error(), HasSubstr("'a/data.pkl' is damaged"));
  EXPECT_TRUE(archive->read("a/data/0"));
  EXPECT_THAT(archive->read("b").error(), HasSubstr("no entry 'b'"));
}

TEST(Zip, RefusesWhatIsNoArchive) {
  const auto file = archive_of(kTwo);
  expect_reason("", "too few");
  expect_reason(std::string(100, 'x'), "does not end");
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(Archive::parse(bytes_of(file.substr(0, size)))) << size;
  }
}

TEST(Zip, RefusesADamagedEnd) {
  const auto file = archive_of(kTwo);
  expect_reason(with_end(file, [](auto& end) { end.disk = 1; }), "several parts");
  expect_reason(with_end(file, [](auto& end) { end.comment_bytes = 1; }), "its end is damaged");
  expect_reason(with_end(file, [](auto& end) { end.entries = end.entries_here = 3; }),
                "has 2 entries and claims 3");
  expect_reason(with_end(file, [](auto& end) { end.directory += 1; }), "does not end where it should");
  expect_reason(with_end(file, [](auto& end) { end.directory = 0xFFFF'FFF0; }),
                "does not end where it should");
  expect_reason(with_end(file, [](auto& end) { end.directory_bytes -= 1; }), "does not end where it should");
  const auto wide = archive_of(kTwo, {.zip64_from = 0});
  const auto locator = wide.rfind("PK\x06\x07");
  const auto end64 = wide.rfind("PK\x06\x06");
  expect_reason(changed<detail::End64Locator>(wide, locator, [](auto& it) { it.end64 = ~0ull - 3; }),
                "zip64");
  expect_reason(changed<detail::End64>(wide, end64, [](auto& it) { it.directory = ~0ull - 3; }), "directory");
  expect_reason(changed<detail::End64>(wide, end64, [](auto& it) { it.entries = 1; }), "zip64");
}

TEST(Zip, RefusesEntriesThatItCannotRead) {
  const auto file = archive_of(kTwo);
  expect_reason(with_entry(file, [](auto& entry) { entry.flags |= 1; }), "is encrypted");
  expect_reason(with_entry(file, [](auto& entry) { entry.disk = 1; }), "another part");
  expect_reason(with_entry(file, [](auto& entry) { entry.offset += 1; }), "not where the directory says");
  expect_reason(with_entry(file, [](auto& entry) { entry.offset = 0xFFFF'FFF0; }), "not where");
  expect_reason(with_entry(file, [](auto& entry) { entry.offset = 0xFFFF'FFFF; }), "not where");
  expect_reason(with_entry(file, [](auto& entry) { entry.size = entry.stored_size = 0x7FFF'FFFF; }),
                "longer than");
  expect_reason(with_entry(file, [](auto& entry) { entry.name_bytes += 1; }), "another name");
  expect_reason(with_entry(file, [](auto& entry) { entry.name_bytes = 0xFFFF; }), "directory is damaged");
  auto renamed = file;
  renamed[file.rfind("a/data.pkl")] = 'b';
  expect_reason(renamed, "another name");
  expect_reason(archive_of({{"\xff", ""}}), "no text");
  expect_reason(archive_of({{"", ""}}), "no text");
}

TEST(Zip, PassesOverWhatFollowsTheArchive) {
  const auto commented = with_end(archive_of(kTwo), [](auto& end) { end.comment_bytes = 5; }) + "hello";
  for (const auto& file : {archive_of(kTwo) + "x", archive_of(kTwo) + std::string(60'000, '\0'), commented}) {
    const auto archive = Archive::parse(bytes_of(file));
    ASSERT_TRUE(archive) << archive.error();
    EXPECT_TRUE(archive->read("a/data.pkl"));
  }
  expect_reason(archive_of(kTwo) + std::string(70'000, 'x'), "does not end");
}

TEST(Zip, ReadsEntriesWithoutAChecksum) {
  auto file = with_entry(archive_of(kTwo), [](auto& entry) { entry.crc32 = 0; });
  const auto archive = Archive::parse(bytes_of(file));
  ASSERT_TRUE(archive) << archive.error();
  EXPECT_TRUE(archive->read("a/data.pkl"));
}

// The archive with one file, "a", whose content is kept as `bytes` in the way that `method` says.
std::string compressed(const std::string& bytes, const std::string& content, std::uint16_t method = 8) {
  return with_entry(archive_of({{"a", bytes}}), [&](auto& entry) {
    entry.method = method;
    entry.size = static_cast<std::uint32_t>(content.size());
    entry.crc32 = static_cast<std::uint32_t>(
        ::crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())));
  });
}

std::string deflated(const std::string& content) {
  z_stream stream{};
  ::deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string bytes(::deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  bytes.resize(stream.total_out);
  ::deflateEnd(&stream);
  return bytes;
}

TEST(Zip, InflatesEntries) {
  for (const auto size : {0, 1, 100, 65'535, 65'536, 65'537, 1'000'000}) {
    const std::string content(static_cast<std::size_t>(size), 'x');
    const auto file = compressed(deflated(content), content);
    const auto archive = Archive::parse(bytes_of(file));
    ASSERT_TRUE(archive) << archive.error();
    const auto copy = *archive;
    ASSERT_TRUE(copy.read("a"));
    EXPECT_TRUE(std::ranges::equal(*copy.read("a"), bytes_of(content))) << size;
  }
}

TEST(Zip, RefusesDamagedCompression) {
  const std::string content(1000, 'x');
  const auto bytes = deflated(content);
  expect_reason(compressed(bytes, content + "x"), "damaged");
  expect_reason(compressed(bytes, content.substr(1)), "damaged");
  expect_reason(compressed(bytes.substr(0, bytes.size() - 1), content), "damaged");
  expect_reason(compressed(bytes + "x", content), "damaged");
  expect_reason(compressed("\xff\xff\xff", content), "damaged");
}

TEST(Zip, DoesNotReadOtherCompression) {
  const auto lzma = [](auto& entry) {
    entry.method = 14;
    entry.flags |= 2;
  };
  for (const auto& file : {with_entry(archive_of(kTwo), [](auto& entry) { entry.method = 12; }),
                           with_entry(archive_of(kTwo), lzma),
                           with_entry(archive_of(kTwo), [](auto& entry) { entry.size = 3; })}) {
    const auto archive = Archive::parse(bytes_of(file));
    ASSERT_TRUE(archive) << archive.error();
    EXPECT_THAT(archive->read("a/data.pkl").error(), HasSubstr("'a/data.pkl' is compressed"));
    EXPECT_TRUE(archive->read("a/data/0"));
  }
}

TEST(Zip, RefusesEntriesThatCannotBeToldApart) {
  expect_reason(archive_of({{"a", "1"}, {"b", "2"}, {"a", "3"}}), "'a' occurs twice");
  // The first entry reaches over the whole second one.
  const auto file = archive_of({{"a", "12"}, {"b", "34"}}, {.alignment = 1});
  const auto grown = [&](auto& entry) { entry.size = entry.stored_size = 20; };
  expect_reason(with_entry(file, grown), "'a' overlaps");
}

}  // namespace
}  // namespace lockstep::zip
