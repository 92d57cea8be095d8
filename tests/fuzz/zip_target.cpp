#include <lockstep/formats/zip_archive.h>

#include "fuzz/target.h"

namespace lockstep::fuzz {
namespace {

using namespace std::string_literals;

std::string archive_of(const std::vector<std::string>& names, const zip::WriterOptions& options = {}) {
  std::string archive;
  const auto append = [&](std::span<const std::byte> bytes) {
    archive.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  zip::Writer writer(append, options);
  for (const auto& name : names) writer.add(name, "content of " + name);
  writer.finish();
  return archive;
}

// Python's: "content of a" four times, in an entry "a" that is compressed by deflate.
const std::string kDeflated =
    "PK\x03\x04\x14\0\0\0\x08\0\0\0!\0"
    "6\xcek\xcd\x11\0\0\0"
    "0\0\0\0\x01\0\0\0aK\xce\xcf+I\xcd"
    "+Q\xc8OSHL&\x82\x0d\0PK\x01\x02\x14\x03\x14\0\0\0\x08\0\0\0!\0"
    "6\xcek\xcd\x11\0\0\0"
    "0\0"
    "\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x80\x01\0\0\0\0aPK\x05\x06\0\0\0\0\x01\0\x01\0/\0\0\0"
    "0\0"
    "\0\0\0\0"s;
// A deflate stream gives at most so many bytes for each of its own.
constexpr std::size_t kMostPerByte = 1032;

void run_zip(std::span<const std::byte> input) {
  const auto archive = zip::Archive::parse(input);
  if (!archive) return expect(!archive.error().empty(), "gave no reason");
  std::size_t bytes = 0;
  for (const auto& entry : archive->entries()) {
    expect(archive->find(entry.name) == &entry, "does not find its own entry");
    if (const auto read = archive->read(entry.name)) bytes += read->size();
  }
  expect(bytes <= kMostPerByte * input.size(), "gave more bytes than there can be");
}

}  // namespace

Target zip_target() {
  return {.name = "zip",
          .seeds = {archive_of({}), archive_of({"a"}), archive_of({"a", "b/c", "d"}, {.alignment = 1}),
                    archive_of({"a", "b"}, {.alignment = 8, .zip64_from = 0}),
                    archive_of({"long name", "b"}, {.zip64_from = 20}), kDeflated},
          .tokens = {"PK\x01\x02", "PK\x03\x04", "PK\x05\x06", "PK\x06\x06", "PK\x06\x07", "\x01\0\x10\0"s,
                     "\xff\xff\xff\xff", "\xff\xff", "\0\0\0\0"s, "\x2d\0"s, "\x08\0"s, "a"},
          .memory_per_byte = 3 * kMostPerByte,  // a vector grows into one of twice its size
          .run = run_zip};
}

}  // namespace lockstep::fuzz
