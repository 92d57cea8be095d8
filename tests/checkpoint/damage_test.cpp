// What was damaged, by accident or on purpose, is refused by name.
#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/formats/checkpoint_tools.h>
#include <lockstep/formats/checksum.h>
#include <nlohmann/json.hpp>

#include "checkpoint/everything.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Damage : public ::testing::Test {
 protected:
  Damage() {
    StateTree own;
    own.set("random", torch::arange(100));
    save_checkpoint(path(), {test::everything(), own}, {});
  }
  fs::path path() const { return folder_ / "x.ckpt"; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path() / name, std::ios::binary) << text;
  }
  // With a checksum that fits: only its content can be wrong.
  void write_manifest(const std::string& text) const {
    write("manifest.json", text);
    write("manifest.xxh128", checksum(std::as_bytes(std::span(text))) + "  manifest.json\n");
  }
  // What reading all of it says; empty when it is taken.
  std::string refusal(Verify verify = Verify::kAll) const {
    try {
      const Checkpoint checkpoint(path(), verify);
      (void)checkpoint.shared();
      (void)checkpoint.own(0);
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  }

  test::TemporaryFolder folder_;
};

TEST_F(Damage, OfAnyBitIsFoundAndItsFileNamed) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path())) files.push_back(entry.path());
  std::mt19937 random(1);
  for (int flip = 0; flip < 1000; ++flip) {
    const auto& file = files[random() % files.size()];
    const auto good = test::content(file);
    auto bad = good;
    bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    write(file.filename(), bad);
    EXPECT_THAT(refusal(),
                HasSubstr(file.filename() == "manifest.xxh128" ? "manifest" : file.filename().string()));
    write(file.filename(), good);
  }
  EXPECT_EQ(refusal(), "");
}

TEST_F(Damage, OfATensorIsFoundWhereOnlyWhatIsNeededIsLookedAt) {
  const auto file = path() / "model.safetensors";
  auto bytes = test::content(file);
  bytes.back() ^= 1;  // of the bias, which lies last
  write("model.safetensors", bytes);
  EXPECT_THAT(refusal(Verify::kNeeded), AllOf(HasSubstr("model.safetensors"), HasSubstr("model/net.0.bias")));
}

TEST_F(Damage, FilesThatAreCutSwappedOrGoneAreNamed) {
  const auto model = test::content(path() / "model.safetensors"),
             tensor = test::content(path() / "tensor.safetensors");
  write("model.safetensors", model.substr(0, model.size() - 1));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("model.safetensors"), HasSubstr("another size")));
  write("model.safetensors", tensor);
  EXPECT_THAT(refusal(), HasSubstr("model.safetensors"));
  fs::remove(path() / "model.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("model.safetensors"));
  write("model.safetensors", "");
  EXPECT_THAT(refusal(), HasSubstr("model.safetensors"));
}

TEST_F(Damage, NewerFormatsAreRefusedByVersion) {
  write_manifest(R"({"format": "lockstep-checkpoint", "format_version": 9})");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("format_version 9"), HasSubstr("newer")));
  write_manifest(R"({"format": "something"})");
  EXPECT_THAT(refusal(), HasSubstr("something"));
}

TEST_F(Damage, ManifestsThatLieAreRefused) {
  const auto good = test::content(path() / "manifest.json");
  const auto lie = [&](const std::string& from, const std::string& to) {
    auto text = good;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    write_manifest(text.replace(at, from.size(), to));
    return refusal();
  };
  EXPECT_THAT(lie("\"model.safetensors\"", "\"../model.safetensors\""), HasSubstr("plain name"));
  EXPECT_THAT(lie("\"begin\": 0", "\"begin\": 1"), HasSubstr("a gap or an overlap"));
  EXPECT_THAT(lie("\"elements\": 6", "\"elements\": 600000"), HasSubstr("net.0.weight"));
  EXPECT_THAT(lie("\"offset\": ", "\"offset\": 9"), HasSubstr("safetensors"));
  EXPECT_THAT(lie("\"dtype\": \"F32\"", "\"dtype\": \"F99\""), HasSubstr("F99"));
  EXPECT_THAT(lie("\"epoch\"", "\"global_step\": 1, \"epoch\""), HasSubstr("twice"));
  for (const auto* epoch : {"\"many\"", "1e300", "-1", "0.5", "18446744073709551615"})
    EXPECT_THAT(lie("\"epoch\": 0", std::string("\"epoch\": ") + epoch), HasSubstr("from 0 on"));
  for (const auto* size : {"0", "2", "4294967296"})
    EXPECT_THAT(lie("\"world_size\": 1", std::string("\"world_size\": ") + size), HasSubstr(size));
  EXPECT_THAT(lie("-9223372036854775808", "9223372036854775808"), HasSubstr("64 bits"));
  EXPECT_THAT(lie("\"quoted", "\xff"), HasSubstr("manifest.json"));
  EXPECT_THAT(lie("\"bytes\": \"00ff10\"", "\"bytes\": \"0g\""), HasSubstr("0g"));
  EXPECT_THAT(lie("\"tensor\": \"tensor\"", "\"tensor\": \"lost\""), HasSubstr("lost"));
  EXPECT_THAT(lie("\"flag\": true", "\"flag\": null"), HasSubstr("null"));
  EXPECT_THAT(lie("\"flag\": true", "\"flag\": " + std::string(100, '[') + std::string(100, ']')),
              HasSubstr("deeper"));
}

// Else a short manifest could ask for any number of readings of a large file.
TEST_F(Damage, TensorsInOnePlaceAreRefusedWhenTheyAreOpened) {
  auto manifest = nlohmann::ordered_json::parse(test::content(path() / "manifest.json"));
  auto& tensors = manifest["tensors"];
  tensors["model/again"] = tensors["model/net.0.weight"];
  write_manifest(manifest.dump());
  for (const auto verify : {Verify::kAll, Verify::kNeeded})
    test::expect_error<CheckpointError>([&] { Checkpoint(path(), verify); },
                                        {"model.safetensors", "one place"});
}

TEST_F(Damage, NothingIsShownThatATerminalObeys) {
  StateTree tree, state;
  tree.set("\x1b[2J\n\xc2\x9b", torch::ones({1}));
  tree.set("text", std::string("\x7f\xc2\x9b"));
  state.set("model", tree);
  save_checkpoint(path(), {state}, {.strategy = "\x1b[2J"});
  const auto text = describe_checkpoint(path());
  EXPECT_THAT(text, HasSubstr("model/?[2J???: F32"));
  EXPECT_EQ(text.find_first_of("\x1b\x7f\x9b"), text.npos) << text;
}

}  // namespace
}  // namespace lockstep
