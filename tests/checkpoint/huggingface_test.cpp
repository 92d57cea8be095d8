// Folders of Hugging Face's transformers: tables of names in both directions, and what is written.
#include <lockstep/checkpoint/huggingface.h>

#include <gmock/gmock.h>

#include <lockstep/base/error.h>
#include <lockstep/checkpoint/interop.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using ::testing::ElementsAre;

struct PairOfLayersImpl : torch::nn::Module {
  PairOfLayersImpl() {
    for (int i = 0; i < 2; ++i) layers->push_back(torch::nn::Linear(2, 3));
    register_module("layers", layers);
  }
  torch::nn::ModuleList layers;
};

const WeightNames kNames{{.theirs = "h.*.c.weight", .ours = "layers.*.weight", .transpose = true},
                         {.theirs = "h.*.c.*", .ours = "layers.*.*"},
                         {.theirs = "h.*.mask", .ours = ""}};

class HuggingFaceFolders : public ::testing::Test {
 protected:
  NamedTensors theirs() const {
    NamedTensors tensors;
    for (const std::string layer : {"0", "1"}) {
      tensors["h." + layer + ".c.weight"] = torch::rand({2, 3});
      tensors["h." + layer + ".c.bias"] = torch::rand({3});
      tensors["h." + layer + ".mask"] = torch::ones({1});
    }
    return tensors;
  }

  IncompatibleKeys load(const NamedTensors& tensors, const WeightNames& names = kNames, bool strict = true) {
    write_weights(folder_ / "in.safetensors", tensors);
    return load_weights(folder_ / "in.safetensors", module_, names, strict);
  }

  void expect_refused(const NamedTensors& tensors, const std::vector<std::string>& words) {
    const auto before = module_.layers[0]->parameters()[0].detach().clone();
    expect_error<CheckpointError>([&] { load(tensors); }, words);
    EXPECT_TRUE(torch::equal(module_.layers[0]->parameters()[0], before));
  }

  test::TemporaryFolder folder_;
  PairOfLayersImpl module_;
};

TEST_F(HuggingFaceFolders, NamesAreTranslatedInBothDirections) {
  const auto tensors = theirs();
  EXPECT_TRUE(load(tensors).empty());
  const auto own = named_tensors(module_);
  EXPECT_TRUE(torch::equal(own.at("layers.1.weight"), tensors.at("h.1.c.weight").t()));
  EXPECT_TRUE(torch::equal(own.at("layers.0.bias"), tensors.at("h.0.c.bias")));
  write_huggingface(folder_ / "out", own, kNames);
  const auto written = read_weights(folder_ / "out");
  EXPECT_EQ(written.size(), 4u);
  for (const auto& [name, tensor] : written) EXPECT_TRUE(torch::equal(tensor, tensors.at(name))) << name;
}

TEST_F(HuggingFaceFolders, TakeTheOneFileBesideTheIndexOfAnEarlierModel) {
  const auto tensors = theirs();
  std::filesystem::create_directory(folder_ / "in");
  folder_.file("in/model.safetensors.index.json",
               R"({"weight_map": {"x": "model-00001-of-00001.safetensors"}})");
  write_weights(folder_ / "in/model.safetensors", tensors);
  const auto read = read_weights(folder_ / "in");
  EXPECT_EQ(read.size(), tensors.size());
}

TEST_F(HuggingFaceFolders, ASubmoduleHasTheNamesBelowIts) {
  const auto rows = below("net", kNames);
  EXPECT_EQ(rows[1].ours, "net.layers.*.*");
  EXPECT_EQ(rows[1].theirs, "h.*.c.*");
  EXPECT_EQ(rows[2].ours, "");
}

TEST_F(HuggingFaceFolders, TheFirstRowCountsAndOtherNamesStay) {
  NamedTensors tensors{{"a.0.b", torch::ones({1})}, {"x", torch::ones({2})}, {"a.0.b.c", torch::ones({3})}};
  write_huggingface(folder_ / "out", tensors,
                    {{.theirs = "first.*", .ours = "a.*.b"}, {.theirs = "second.*", .ours = "a.*.b"}});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : read_weights(folder_ / "out")) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("a.0.b.c", "first.0", "x"));
}

TEST_F(HuggingFaceFolders, RefusalsNameTensorsAsTheFileDoes) {
  auto tensors = theirs();
  tensors.erase("h.1.c.weight");
  expect_refused(tensors, {"in.safetensors", "h.1.c.weight", "tensor Float [2, 3]"});
  tensors = theirs();
  tensors["h.2.c.bias"] = torch::ones({3});
  expect_refused(tensors, {"in.safetensors", "h.2.c.bias"});
  tensors = theirs();
  tensors["h.0.c.weight"] = torch::ones({3, 2});
  expect_refused(tensors, {"h.0.c.weight", "[2, 3]", "[3, 2]"});
  tensors["h.0.c.weight"] = torch::ones({3});
  expect_refused(tensors, {"h.0.c.weight", "2 dimensions", "1 dimensions"});
  tensors = theirs();
  tensors["layers.0.bias"] = torch::ones({3});
  expect_refused(tensors, {"in.safetensors", "'h.0.c.bias' and 'layers.0.bias'"});
}

TEST_F(HuggingFaceFolders, WithoutStrictnessTheKeysAreReturned) {
  auto tensors = theirs();
  tensors.erase("h.1.c.weight");
  tensors["more"] = torch::ones({3});
  const auto keys = load(tensors, kNames, false);
  EXPECT_THAT(keys.missing_keys, ElementsAre("h.1.c.weight"));
  EXPECT_THAT(keys.unexpected_keys, ElementsAre("more"));
}

TEST_F(HuggingFaceFolders, TablesAreChecked) {
  for (const WeightNames& names :
       {WeightNames{{.theirs = "a.*", .ours = "b"}}, WeightNames{{.theirs = "", .ours = "b"}}}) {
    expect_error<ConfigError>([&] { load(theirs(), names); }, {"a row of a table", "'b'"});
    expect_error<ConfigError>([&] { write_huggingface(folder_ / "out", theirs(), names); }, {"'b'"});
  }
  const WeightNames twice{{.theirs = "same", .ours = "a"}, {.theirs = "same", .ours = "b"}};
  expect_error<CheckpointError>(
      [&] {
        write_huggingface(folder_ / "out", {{"a", torch::ones({1})}, {"b", torch::ones({1})}}, twice);
      },
      {"'b', as 'same'"});
  expect_error<CheckpointError>(
      [&] {
        write_huggingface(folder_ / "out", {{"a", torch::ones({1})}},
                          {{.theirs = "t", .ours = "a", .transpose = true}});
      },
      {"'a'", "2 dimensions"});
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(HuggingFaceFolders, AreWrittenInSeveralFilesWithAnIndex) {
  const auto tensors = theirs();
  write_huggingface(folder_ / "out", tensors, {}, {.max_shard_bytes = 40});
  const auto index = read_json(folder_ / "out" / "model.safetensors.index.json");
  EXPECT_EQ(index.get<StateTree>("metadata").get<std::int64_t>("total_size"), 2 * (24 + 12 + 4));
  EXPECT_EQ(index.get<StateTree>("weight_map").get<std::string>("h.0.c.bias"),
            "model-00001-of-00002.safetensors");
  EXPECT_EQ(index.get<StateTree>("weight_map").get<std::string>("h.1.mask"),
            "model-00002-of-00002.safetensors");
  const auto read = read_weights(folder_ / "out");
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(torch::equal(tensor, read.at(name))) << name;
  expect_error<IoError>([&] { write_huggingface(folder_ / "out", tensors); }, {"out", "a folder with files"});
  expect_error<ConfigError>([&] { write_huggingface(folder_ / "x", tensors, {}, {.max_shard_bytes = 0}); },
                            {"max_shard_bytes"});
}

TEST_F(HuggingFaceFolders, TakeTheFilesOfTheModelAndTheTypeOfItsWeights) {
  fs::create_directory(folder_ / "like");
  folder_.file("like/config.json", R"({"z": 1e-05, "dtype": "float32", "a": null, "torch_dtype": "x"})");
  folder_.file("like/tokenizer.json", "{}");
  folder_.file("like/model.safetensors.index.json", "stale");
  folder_.file("like/model.safetensors", "stale");
  const HuggingFaceOptions options{.like = folder_ / "like", .dtype = torch::kBFloat16};
  write_weights(folder_ / "from.safetensors",
                {{"w", torch::ones({2})}, {"n", torch::ones({2}, torch::kLong)}});
  convert_to_huggingface(folder_ / "from.safetensors", folder_ / "out", {}, options);
  const auto tensors = read_weights(folder_ / "out");
  EXPECT_EQ(tensors.at("w").scalar_type(), torch::kBFloat16);
  EXPECT_EQ(tensors.at("n").scalar_type(), torch::kLong);
  EXPECT_EQ(test::content(folder_ / "out" / "tokenizer.json"), "{}");
  EXPECT_FALSE(fs::exists(folder_ / "out" / "model.safetensors.index.json"));
  EXPECT_EQ(
      test::content(folder_ / "out" / "config.json"),
      "{\n  \"z\": 1e-05,\n  \"dtype\": \"bfloat16\",\n  \"a\": null,\n  \"torch_dtype\": \"bfloat16\"\n}\n");
  fs::remove(folder_ / "like" / "config.json");
  expect_error<IoError>([&] { write_huggingface(folder_ / "other", tensors, {}, options); }, {"config.json"});
  EXPECT_FALSE(fs::exists(folder_ / "other"));
}

TEST_F(HuggingFaceFolders, ReadJson) {
  const auto tree = read_json(folder_.file(
      "a.json", R"({"i": 3, "d": 2.0, "big": 18446744073709551615, "t": true, "s": "x", "n": null,
                    "o": {"l": [1, null, [2]]}})"));
  EXPECT_EQ(tree.get<std::int64_t>("i"), 3);
  EXPECT_EQ(tree.get<double>("d"), 2);
  EXPECT_GT(tree.get<double>("big"), 1.8e19);
  EXPECT_TRUE(tree.get<bool>("t"));
  EXPECT_EQ(tree.get<std::string>("s"), "x");
  EXPECT_FALSE(tree.contains("n"));
  const auto& list = tree.get<StateTree>("o").get<StateList>("l");
  EXPECT_EQ(list.size(), 3u);
  EXPECT_TRUE(list.get<StateTree>(1).empty());
  expect_error<IoError>([&] { read_json(folder_ / "absent.json"); }, {"absent.json"});
  for (const auto* text : {"", "[1]", "{", "{\"a\": 1, \"a\": 2}"})
    expect_error<CheckpointError>([&] { read_json(folder_.file("bad.json", text)); }, {"bad.json"});
  expect_error<CheckpointError>(
      [&] { read_json(folder_.file("deep.json", std::string(100'000, '[') + "]")); }, {"deep.json"});
}

}  // namespace
}  // namespace lockstep
