#include <cstdio>

#include <lockstep/formats/tar.h>

#include "fuzz/target.h"
#include "support/tar_text.h"

namespace lockstep::fuzz {
namespace {

using test::tar_end;
using test::tar_member;

void parse_tar(std::span<const std::byte> archive) {
  tar::SampleReader reader(archive);
  std::size_t bytes = 0;
  for (;;) {
    const auto sample = reader.next();
    if (!sample) return expect(!sample.error().empty(), "gave no reason");
    if (!*sample) break;
    expect(!(*sample)->fields.empty(), "gave a sample of nothing");
    for (const auto& field : (*sample)->fields) bytes += field.bytes.size();
  }
  expect(bytes <= archive.size(), "gave more bytes than there are");
}

/// `archive` with the right checksum in each of its blocks that has the mark of a header.
std::string with_fitting_checksums(std::string archive) {
  for (std::size_t at = 0; at + 512 <= archive.size(); at += 512) {
    if (archive.compare(at + 257, 5, "ustar") != 0) continue;
    archive.replace(at + 148, 8, 8, ' ');
    unsigned sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(archive[at + i]);
    char digits[8];
    std::snprintf(digits, sizeof digits, "%06o", sum);
    archive.replace(at + 148, 7, digits, 7);
  }
  return archive;
}

/// Also with right checksums, without which few inputs come far.
void run_tar(std::span<const std::byte> input) {
  parse_tar(input);
  parse_tar(bytes_of(with_fitting_checksums({reinterpret_cast<const char*>(input.data()), input.size()})));
}

}  // namespace

Target tar_target() {
  return {
      .name = "tar",
      .seeds = {tar_member("a/0.jpg", "picture") + tar_member("a/0.cls", "7") + tar_end(),
                tar_member("l", "long/name.txt", 'L') + tar_member("x", "one") + tar_member("d/", "", '5'),
                tar_member("p", "14 path=a/b.c\n10 size=3\n", 'x') + tar_member("s", "abc", '0', 0)},
      .tokens = {tar_member("b.x", "1"), "ustar", "14 path=a/b.c\n", "9 size=1\n", "\x80", "00000000001",
                 "77777777777", "L", "x", "S", "."},
      .memory_bytes = std::size_t{64} << 10,
      .memory_per_byte = 4,
      .run = run_tar};
}

}  // namespace lockstep::fuzz
