#include <gmock/gmock.h>

#include <cstring>

#include <lockstep/formats/mapped_file.h>
#include <lockstep/formats/torch_file.h>

#include "formats/pickle_text.h"
#include "support/bytes.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace lockstep::torch_file {
namespace {

using pickle::Dict;
using pickle::Dtype;
using pickle::Storage;
using pickle::Tensor;
using test::bytes_of;
using test::pickle_of;
using test::pickled_storage;
using test::pickled_tensor;
using test::pickled_text;
using ::testing::HasSubstr;
using namespace std::string_literals;
using Files = std::vector<std::pair<std::string, std::string>>;

std::string archive_of(const Files& files) {
  std::string archive;
  const auto append = [&](std::span<const std::byte> bytes) {
    archive.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  zip::Writer writer(append);
  for (const auto& [name, text] : files) writer.add(name, text);
  writer.finish();
  return archive;
}

void expect_reason(const Files& files, const std::string& reason) {
  const auto file = archive_of(files);
  const auto contents = Contents::parse(bytes_of(file));
  ASSERT_FALSE(contents) << "accepted; expected: " << reason;
  EXPECT_THAT(contents.error(), HasSubstr(reason));
}

const std::string kOneTensor = pickle_of(
    "}" + pickled_text("w") + pickled_tensor(pickled_storage("0", 2), "K\x00K\x02\x85K\x01\x85"s) + "s");

TEST(TorchFile, ReadsWhatItWrites) {
  const test::TemporaryFolder folder;
  const std::vector<float> numbers{1, 2, 3};
  const Storage storage{.key = "0", .bytes = 12, .dtype = Dtype::kF32};
  Dict root;
  root.set("w",
           Tensor{.storage = std::make_shared<Storage>(storage), .offset = 1, .shape = {2}, .stride = {1}});
  root.set("epoch", std::int64_t{3});
  const StorageBytes bytes{.key = "0", .bytes = std::as_bytes(std::span(numbers))};
  write(folder / "file", root, std::span(&bytes, 1));

  const MappedFile file(folder / "file");
  EXPECT_TRUE(is_archive(file.bytes()));
  const auto contents = Contents::parse(file.bytes());
  ASSERT_TRUE(contents) << contents.error();
  EXPECT_EQ(contents->root(), pickle::Value(root));
  const auto read = contents->bytes_of(storage);
  ASSERT_EQ(read.size(), 12u);
  EXPECT_EQ(std::memcmp(read.data(), numbers.data(), 12), 0);
  EXPECT_EQ((read.data() - file.bytes().data()) % 64, 0);
}

TEST(TorchFile, ReadsACheckpointOfLightning) {
  const MappedFile file(test::in_repository("tests/formats/lightning.ckpt"));
  const auto contents = Contents::parse(file.bytes());
  ASSERT_TRUE(contents) << contents.error();
  const auto* root = contents->root().as<Dict>();
  ASSERT_NE(root, nullptr);
  EXPECT_EQ(*root->find("global_step"), pickle::Value(std::int64_t{10}));
  EXPECT_EQ(*root->find("pytorch-lightning_version"), pickle::Value("2.6.6"));
  const auto* weight = root->find("state_dict")->as<Dict>()->find("net.0.weight")->as<Tensor>();
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->shape, (std::vector<std::int64_t>{128, 64}));
  EXPECT_EQ(contents->bytes_of(*weight->storage).size(), 128u * 64 * 4);
}

TEST(TorchFile, RefusesStoragesThatDoNotFit) {
  const std::string eight(8, 'x');
  expect_reason({{"a/data.pkl", kOneTensor}}, "no entry 'a/data/0'");
  expect_reason({{"a/data.pkl", kOneTensor}, {"a/data/0", "1234"}},
                "storage '0' has 4 bytes, its tensors say 8");
  expect_reason({{"a/data.pkl", kOneTensor}, {"a/data/0", eight + "x"}}, "has 9 bytes");
  expect_reason({{"a/data.pkl", kOneTensor}, {"a/data/0", eight}, {"a/byteorder", "big"}}, "'big'");
  const auto fits = archive_of({{"a/data.pkl", kOneTensor}, {"a/data/0", eight}});
  EXPECT_TRUE(Contents::parse(bytes_of(fits)));
}

TEST(TorchFile, FindsDamageInAStorage) {
  auto file = archive_of({{"a/data.pkl", kOneTensor}, {"a/data/0", "12345678"}});
  file[file.find("12345678")] = '0';
  EXPECT_THAT(Contents::parse(bytes_of(file)).error(), HasSubstr("'a/data/0' is damaged"));
}

TEST(TorchFile, RefusesOtherFiles) {
  expect_reason({{"a/code/x.py", ""}}, "an archive without data.pkl");
  expect_reason({{"a/models/model.json", "{}"}, {"a/archive_format", "pt2"}},
                "an exported program, as torch.export.save");
  expect_reason({{"a/data.pkl", kOneTensor}, {"a/constants.pkl", ""}}, "TorchScript program");
  expect_reason({{"a/data.pkl", pickle_of("I1\n")}}, "data.pkl: byte 2 is the unknown instruction");
  EXPECT_FALSE(Contents::parse({}));
  EXPECT_FALSE(is_archive({}));
}

}  // namespace
}  // namespace lockstep::torch_file
