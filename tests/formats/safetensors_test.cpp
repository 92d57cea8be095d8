#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include <lockstep/base/error.h>
#include <lockstep/formats/safetensors.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep::safetensors {
namespace {

using test::expect_error;
using test::TemporaryFolder;
using ::testing::HasSubstr;

/// The bytes of a file with that header and data.
std::string file_of(std::string_view header, std::string_view data = {}) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file.append(header).append(data);
}

Expected<Contents> parse_text(const std::string& file) { return parse(std::as_bytes(std::span(file))); }

void expect_reason(const std::string& file, const std::string& reason) {
  const auto contents = parse_text(file);
  ASSERT_FALSE(contents.has_value()) << "accepted; expected: " << reason;
  EXPECT_THAT(contents.error(), HasSubstr(reason));
}

const std::string kTwo =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
    R"("b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";

TEST(SafetensorsParse, GivesTensorsAndMetadata) {
  const std::string file = file_of(kTwo + "   ", "12345678x");
  const auto contents = parse_text(file);
  ASSERT_TRUE(contents.has_value()) << contents.error();
  ASSERT_EQ(contents->tensors.size(), 2u);
  EXPECT_EQ(contents->tensors[0].name, "a");
  EXPECT_EQ(contents->tensors[0].dtype, Dtype::kF32);
  EXPECT_EQ(contents->tensors[0].shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_TRUE(contents->tensors[1].shape.empty());
  EXPECT_EQ(static_cast<char>(contents->tensors[1].bytes[0]), 'x');
  EXPECT_EQ(contents->metadata, (Metadata{{"format", "pt"}}));
}

TEST(SafetensorsParse, TakesNullForNoMetadata) {
  const auto file =
      file_of(R"({"__metadata__":null,"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x");
  const auto contents = parse_text(file);
  ASSERT_TRUE(contents.has_value()) << contents.error();
  EXPECT_TRUE(contents->metadata.empty());
  EXPECT_EQ(contents->tensors.size(), 1u);
}

TEST(SafetensorsParse, TakesEmptyTensorsAnywhere) {
  EXPECT_TRUE(parse_text(file_of(R"({"a":{"dtype":"F32","shape":[0,3],"data_offsets":[1,1]},)"
                                 R"("b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                 "x"))
                  .has_value());
  EXPECT_TRUE(parse_text(file_of("{}")).has_value());
}

TEST(SafetensorsParse, SaysWhatIsWrongWithTheFrame) {
  expect_reason("", "too few");
  expect_reason(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "over the limit");
  expect_reason(file_of("{}").substr(0, 9), "exceeds the file");
  expect_reason(file_of(" {}"), "does not start with {");
  expect_reason(file_of("{\"a\""), "no JSON");
  expect_reason(file_of("{}{}"), "no JSON");
  expect_reason(file_of("{\"\xff\":{}}"), "no JSON");
}

TEST(SafetensorsParse, SaysWhatIsWrongWithATensor) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return file_of(
        R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
        "12345678");
  };
  ASSERT_TRUE(parse_text(one("F32", "[2]", "[0,8]")).has_value());
  expect_reason(one("F31", "[2]", "[0,8]"), "unknown dtype 'F31'");
  expect_reason(one("F32", "[3]", "[0,8]"), "'w' has 8 bytes");
  expect_reason(one("F32", "[2]", "[0,9]"), "outside the file");
  expect_reason(one("F32", "[2]", "[8,0]"), "outside the file");
  expect_reason(one("F32", "[2]", "[0,18446744073709551615]"), "outside the file");
  expect_reason(one("F32", "[2]", "[0]"), "no pair");
  expect_reason(one("F32", "[-2]", "[0,8]"), "unexpected a negative number in 'w'");
  expect_reason(one("F32", "[2.0]", "[0,8]"), "a fraction");
  expect_reason(one("F32", "[[2]]", "[0,8]"), "unexpected a list");
  expect_reason(one("F32", "[4611686018427387904,4,2]", "[0,8]"), "'w' has 8 bytes");
  expect_reason(one("F32", "[1]", "[4,8]"), "a hole before tensor 'w'");
  expect_reason(one("F32", "[1]", "[0,4]"), "4 bytes follow");
  expect_reason(file_of(R"({"w":{"dtype":"U8","shape":[1]}})", "1"), "'w' lacks one of");
  expect_reason(file_of(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", "1"),
                "unknown key 'x'");
  expect_reason(file_of(R"({"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1"),
                "'dtype' occurs twice");
  expect_reason(file_of(R"({"__metadata__":{"n":1}})"), "unexpected a number");
  expect_reason(file_of(R"({"__metadata__":{"n":null}})"), "unexpected null");
  expect_reason(file_of(R"({"w":null})"), "unexpected null");
}

TEST(SafetensorsParse, RefusesDuplicatesAndOverlaps) {
  const std::string a = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  expect_reason(file_of("{" + a + "," + a + "}", "12"), "'a' occurs twice");
  expect_reason(file_of("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "123"),
                "overlaps");
  expect_reason(file_of("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "12"),
                "overlaps");
}

TEST(SafetensorsParse, IsNotFooledByNesting) {
  expect_reason(file_of("{\"a\":" + std::string(1'000'000, '[')), "unexpected a list");
  std::string nested = "{";
  for (int i = 0; i < 100'000; ++i) nested += "\"a\":{";
  expect_reason(file_of(nested), "unknown key 'a'");
}

TEST(SafetensorsParse, SurvivesMutations) {
  const std::string good = file_of(kTwo, "12345678x");
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 10'000; ++round) {
    std::string bad = good;
    for (unsigned flips = 1 + random() % 3; flips > 0; --flips) {
      bad[random() % bad.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bad.resize(1 + random() % bad.size());
    if (random() % 4 == 0) bad.insert(random() % bad.size(), bad.substr(random() % bad.size()));
    const auto contents = parse_text(bad);
    if (!contents) {
      ASSERT_FALSE(contents.error().empty());
      continue;
    }
    ++accepted;
    std::size_t bytes = 0;
    for (const TensorView& tensor : contents->tensors) bytes += tensor.bytes.size();
    ASSERT_LE(bytes, bad.size());
  }
  EXPECT_GT(accepted, 0);  // a changed name or number is no damage that can be seen
  EXPECT_LT(accepted, 10'000);
}

class SafetensorsFile : public ::testing::Test {
 protected:
  std::vector<TensorView> tensors() const {
    return {{.name = "flags", .dtype = Dtype::kBool, .shape = {3}, .bytes = bytes(3)},
            {.name = "weight", .dtype = Dtype::kF32, .shape = {2, 1}, .bytes = bytes(8)},
            {.name = "half \"\u00e9\"", .dtype = Dtype::kBF16, .shape = {1}, .bytes = bytes(2)},
            {.name = "count", .dtype = Dtype::kI64, .shape = {}, .bytes = bytes(8)}};
  }
  std::span<const std::byte> bytes(std::size_t count) const {
    return std::as_bytes(std::span(data_)).first(count);
  }

  TemporaryFolder folder_;
  std::string data_ = "0123456789abcdef";
};

TEST_F(SafetensorsFile, GivesBackWhatWasWritten) {
  write(folder_ / "m", tensors(), {{"format", "pt"}, {"step", "3"}});
  const File file(folder_ / "m");
  ASSERT_EQ(file.tensors().size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const TensorView expected = tensors()[i];
    const TensorView& actual = file.tensors()[i];
    EXPECT_EQ(actual.name, expected.name);
    EXPECT_EQ(actual.dtype, expected.dtype);
    EXPECT_EQ(actual.shape, expected.shape);
    EXPECT_TRUE(std::ranges::equal(actual.bytes, expected.bytes)) << expected.name;
  }
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"step", "3"}}));
}

TEST_F(SafetensorsFile, AlignsEveryTensorToItsElements) {
  write(folder_ / "m", tensors());
  const File file(folder_ / "m");
  for (const TensorView& tensor : file.tensors()) {
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.bytes.data());
    EXPECT_EQ(address % dtype_bytes(tensor.dtype), 0u) << tensor.name;
  }
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.at("count").bytes.data()) % 8, 0u);
  EXPECT_EQ(folder_.entries(), 1);
}

TEST_F(SafetensorsFile, FindsByNameAndListsTheNamesWhenThereIsNone) {
  write(folder_ / "m", tensors());
  File file(folder_ / "m");
  const File moved = std::move(file);
  EXPECT_EQ(moved.at("weight").shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(moved.find("wight"), nullptr);
  expect_error<CheckpointError>([&] { moved.at("wight"); },
                                {"'wight'", (folder_ / "m").string(), "'weight'"});
}

TEST_F(SafetensorsFile, NamesTheFileThatIsNone) {
  expect_error<CheckpointError>([&] { File{folder_.file("bad", "x")}; },
                                {(folder_ / "bad").string(), "too few"});
  expect_error<IoError>([&] { File{folder_ / "none"}; }, {(folder_ / "none").string()});
  EXPECT_FALSE(File::open(folder_.file("bad", "x")).has_value());
  const std::vector<std::vector<std::string>> others{
      {"version https://git-lfs.github.com/spec/v1\noid sha256:46\n", "pointer of Git LFS", "git lfs pull"},
      {"<!DOCTYPE html><html>404 Not Found</html>", "a page of the web", "download"},
      {"L119547037146038801333356L\n.", "torch.save with pickle_protocol 0 or 1",
       "safetensors.torch.save_file"},
      {"\x80\x04\x8a\x0a......", "a pickle of Python, protocol 4", "safetensors.torch.save_file"}};
  for (const auto& other : others)
    expect_error<CheckpointError>([&] { File{folder_.file("bad", other[0])}; }, {"bad", other[1], other[2]});
}

TEST_F(SafetensorsFile, RefusesToWriteWhatCannotBeRead) {
  const auto expect_refusal = [&](std::vector<TensorView> list, const std::string& part) {
    expect_error<CheckpointError>([&] { write(folder_ / "m", list); }, {part});
    EXPECT_EQ(folder_.entries(), 0);
  };
  const TensorView good = tensors()[1];
  expect_refusal({good, good}, "'weight' occurs twice");
  expect_refusal({{.name = "short", .dtype = Dtype::kF32, .shape = {3}, .bytes = bytes(8)}}, "'short'");
  expect_refusal({{.name = "minus", .dtype = Dtype::kF32, .shape = {-2}, .bytes = bytes(8)}}, "'minus'");
  expect_refusal({{.name = "__metadata__", .dtype = Dtype::kF32, .shape = {2}, .bytes = bytes(8)}},
                 "reserved");
  expect_refusal({{.name = "\xff", .dtype = Dtype::kF32, .shape = {2}, .bytes = bytes(8)}}, "UTF-8");
}

TEST(SafetensorsDtype, HasTheNamesOfTheFormat) {
  for (const char* name : {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "C64", "F4", "I64",
                           "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"}) {
    ASSERT_TRUE(dtype_named(name).has_value()) << name;
    EXPECT_EQ(dtype_name(*dtype_named(name)), name);
  }
  EXPECT_FALSE(dtype_named("f32").has_value());
  EXPECT_EQ(dtype_bytes(Dtype::kBF16), 2u);
}

}  // namespace
}  // namespace lockstep::safetensors
