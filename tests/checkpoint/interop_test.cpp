#include <gmock/gmock.h>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/checkpoint/interop.h>
#include <lockstep/formats/mapped_file.h>
#include <lockstep/formats/torch_file.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using test::expect_error;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::filesystem::path kLightning = test::in_repository("tests/formats/lightning.ckpt");

class Interop : public ::testing::Test {
 protected:
  StateTree there_and_back(const StateTree& state) const {
    write_torch_file(folder_ / "file.pt", state);
    return read_torch_file(folder_ / "file.pt");
  }
  test::TemporaryFolder folder_;
};

TEST_F(Interop, StateGoesToATorchFileAndBack) {
  StateTree inner;
  inner.set("half", torch::tensor({1.5, -2.0}).to(torch::kBFloat16));
  inner.set("flags", torch::tensor({true, false}));
  StateTree state;
  state.set("inner", inner);
  state.set("transposed", torch::arange(6).view({2, 3}).t());
  state.set("number", torch::tensor(7, torch::kByte));
  state.set("empty", torch::empty({0, 3}));
  state.set("list", StateList(std::vector<double>{1, 2.5}));
  state.set("integer", std::int64_t{1} << 40);
  state.set("flag", true);
  state.set("text", std::string("h\u00e9"));
  state.set("bytes", StateBytes{std::byte{0}, std::byte{0xff}});
  EXPECT_THAT(differences(state, there_and_back(state)), IsEmpty());
}

TEST_F(Interop, TensorsThatAreStoredTwiceShareMemory) {
  const auto tensor = torch::ones({1000});
  StateTree state;
  state.set("a", tensor);
  state.set("b", tensor);
  state.set("part", tensor.slice(0, 1));
  const auto read = there_and_back(state);
  EXPECT_EQ(read.get<at::Tensor>("a").const_data_ptr(), read.get<at::Tensor>("b").const_data_ptr());
  EXPECT_NE(read.get<at::Tensor>("a").storage().data(), read.get<at::Tensor>("part").storage().data());
  EXPECT_LT(std::filesystem::file_size(folder_ / "file.pt"), 10'000u);
}

TEST_F(Interop, ViewsOfOneStorageAreReadWithOneCopyOfIt) {
  const std::vector<float> numbers(1000, 2.5F);
  const auto bytes = std::as_bytes(std::span(numbers));
  const auto storage = std::make_shared<const pickle::Storage>(
      pickle::Storage{.key = "0", .bytes = bytes.size(), .dtype = safetensors::Dtype::kF32});
  pickle::Dict dict;
  for (std::int64_t i = 0; i < 5; ++i) {
    dict.set("w" + std::to_string(i), pickle::Value(pickle::Tensor{.storage = storage,
                                                                   .dtype = safetensors::Dtype::kF32,
                                                                   .offset = i,
                                                                   .shape = {1},
                                                                   .stride = {1}}));
  }
  const torch_file::StorageBytes stored{.key = "0", .bytes = bytes};
  torch_file::write(folder_ / "views.pt", dict, std::span(&stored, 1));
  const auto weights = read_weights(folder_ / "views.pt");
  for (const auto& [name, tensor] : weights) {
    EXPECT_EQ(tensor.storage().data(), weights.at("w0").storage().data()) << name;
    EXPECT_EQ(tensor.item<float>(), 2.5F);
  }
}

TEST_F(Interop, SignsThatAreYetToChangeAreChanged) {
  const auto ones = torch::ones({2});
  StateTree state;
  state.set("plus", ones);
  state.set("minus", ones._neg_view());
  const auto read = there_and_back(state);
  EXPECT_EQ(read.get<at::Tensor>("plus").sum().item<float>(), 2);
  EXPECT_EQ(read.get<at::Tensor>("minus").sum().item<float>(), -2);
}

TEST_F(Interop, AnOptimizersStateHasIntegerKeys) {
  StateTree parameter;
  parameter.set("step", 1.0);
  StateTree by_number;
  by_number.set("0", parameter);
  by_number.set("01", parameter);  // no integer: it would come back as another text
  StateTree optimizer;
  optimizer.set("state", by_number);
  optimizer.set("param_groups", StateList());
  StateTree state;
  state.set("optimizer", optimizer);
  state.set("state", by_number);
  EXPECT_THAT(differences(state, there_and_back(state)), IsEmpty());

  const MappedFile file(folder_ / "file.pt");
  const auto contents = torch_file::Contents::parse(file.bytes());
  ASSERT_TRUE(contents) << contents.error();
  const auto& root = *contents->root().as<pickle::Dict>();
  const auto& written = *root.find("optimizer")->as<pickle::Dict>()->find("state")->as<pickle::Dict>();
  EXPECT_EQ(written.entries[0].first, pickle::Value(std::int64_t{0}));
  EXPECT_EQ(written.entries[1].first, pickle::Value("01"));
  EXPECT_EQ(root.find("state")->as<pickle::Dict>()->entries[0].first, pickle::Value("0"));
}

TEST_F(Interop, ReadsACheckpointOfLightning) {
  const auto checkpoint = read_torch_file(kLightning);
  EXPECT_EQ(checkpoint.get<std::int64_t>("global_step"), 10);
  const auto& optimizer = checkpoint.get<StateList>("optimizer_states").get<StateTree>(0);
  const auto& moments = optimizer.get<StateTree>("state").get<StateTree>("0");
  EXPECT_EQ(moments.get<at::Tensor>("exp_avg").sizes(), (std::vector<std::int64_t>{128, 64}));
  EXPECT_THAT(optimizer.get<StateList>("param_groups").get<StateTree>(0).get_all<double>("betas"),
              ElementsAre(0.9, 0.999));
  EXPECT_TRUE(std::get<StateTree>(*checkpoint.find("loops")).contains("fit_loop"));
}

TEST_F(Interop, CompletesACheckpointForLightning) {
  StateTree checkpoint;
  checkpoint.set("epoch", std::int64_t{3});
  expect_error<CheckpointError>([&] { write_lightning_checkpoint(folder_ / "x", checkpoint); },
                                {"state_dict"});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x"));
  StateTree model;
  model.set("weight", torch::ones({2}));
  checkpoint.set("state_dict", model);
  write_lightning_checkpoint(folder_ / "x", checkpoint);
  const auto read = read_torch_file(folder_ / "x");
  EXPECT_EQ(read.get<std::int64_t>("epoch"), 3);
  EXPECT_EQ(read.get<std::int64_t>("global_step"), 0);
  for (const auto* name :
       {"pytorch-lightning_version", "loops", "callbacks", "optimizer_states", "lr_schedulers"}) {
    EXPECT_TRUE(read.contains(name)) << name;
  }
}

TEST_F(Interop, RefusesTextThatPythonCannotRead) {
  StateTree value, name, items;
  value.set("name", std::string("caf\xe9"));
  name.set("caf\xe9", 1.0);
  StateList list;
  list.push_back(std::string("caf\xe9"));
  items.set("items", list);
  for (const auto& bad : {value, name, items}) {
    StateTree state;
    state.set("state", bad);
    state.set("param_groups", StateList());
    expect_error<CheckpointError>([&] { write_torch_file(folder_ / "c.pt", state); },
                                  {"state", "UTF-8", "caf"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "c.pt"));
  }
}

TEST_F(Interop, NamesTheFileThatItCannotRead) {
  expect_error<IoError>([&] { read_torch_file(folder_ / "absent.pt"); }, {"absent.pt"});
  folder_.file("text.pt", "some text");
  expect_error<CheckpointError>([&] { read_torch_file(folder_ / "text.pt"); },
                                {"text.pt", "no file of torch.save"});
  StateTree state;
  for (const StateValue& bad : {StateValue(at::quantize_per_tensor(torch::ones({2}), 0.1, 0, at::kQInt8)),
                                StateValue(StateTree::unread("QInt8 of Python"))}) {
    state.set("milestones", bad);
    expect_error<CheckpointError>([&] { write_torch_file(folder_ / "c.pt", state); }, {"QInt8"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "c.pt"));
  }
}

TEST_F(Interop, ReadsFoldersOfHuggingFaceWithFilesOfTorch) {
  const auto single = folder_ / "single", sharded = folder_ / "sharded";
  for (const auto& folder : {single, sharded}) std::filesystem::create_directory(folder);
  const NamedTensors tensors{{"a", torch::ones(2)}, {"b", torch::zeros({2, 2})}};
  const auto expect_tensors = [&](const std::filesystem::path& folder) {
    const auto read = read_weights(folder);
    ASSERT_EQ(read.size(), tensors.size());
    for (const auto& [name, tensor] : tensors) EXPECT_TRUE(torch::equal(read.at(name), tensor)) << name;
  };
  const auto write_bin = [](const std::filesystem::path& file, const NamedTensors& held) {
    StateTree state;
    for (const auto& [name, tensor] : held) state.set(name, tensor);
    write_torch_file(file, state);
  };
  write_bin(single / "pytorch_model.bin", tensors);
  expect_tensors(single);
  const auto write_index = [&](const std::string& file_of_b) {
    write_file_atomically(sharded / "pytorch_model.bin.index.json",
                          R"({"weight_map": {"a": "one.bin", "b": ")" + file_of_b + R"("}})");
  };
  write_bin(sharded / "one.bin", {{"a", tensors.at("a")}});
  write_bin(sharded / "two.bin", {{"b", tensors.at("b")}});
  write_index("two.bin");
  expect_tensors(sharded);
  const auto refuses = [&](const std::vector<std::string>& parts) {
    expect_error<CheckpointError>([&] { read_weights(sharded); }, parts);
  };
  write_index("one.bin");
  refuses({"one.bin", "lacks tensor b", "index.json"});
  write_index("../single/pytorch_model.bin");
  refuses({"names no file beside it", "../single"});
}

TEST_F(Interop, NamesWhatAFolderHasThatHoldsNoWeights) {
  const auto refuses = [&](const std::vector<std::string>& parts) {
    expect_error<CheckpointError>([&] { read_weights(folder_.path()); }, parts);
  };
  refuses({"holds no weights", "model.safetensors", "pytorch_model.bin"});
  folder_.file(".metadata", "");
  refuses({"torch.distributed.checkpoint", "read_distributed_checkpoint"});
}

TEST_F(Interop, SaysWhatLiesInThePlaceOfWeights) {
  const auto refuses = [&](const std::string& text, const std::vector<std::string>& parts) {
    const auto file = folder_.file("model.safetensors", text);
    expect_error<CheckpointError>([&] { read_weights(file); }, parts);
  };
  refuses("version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
          {"pointer of Git LFS", "git lfs pull"});
  refuses("<!DOCTYPE html><html>", {"page of the web", "download the file itself"});
  refuses("what is this", {"a file of another kind"});
}

TEST_F(Interop, SaysHowToConvertWhatItCannotRead) {
  const auto refuses = [&](std::string_view name, const std::vector<std::string>& parts) {
    expect_error<CheckpointError>([&] { read_torch_file(folder_ / name); }, parts);
  };
  folder_.file("old.pt", "\x80\x02\x8a\x0a");  // as files before PyTorch 1.6 begin
  refuses("old.pt", {"old.pt", "torch.save(torch.load(file, weights_only=False), file)"});
  write_weights(folder_ / "net.safetensors", {{"w", torch::ones(2)}});
  refuses("net.safetensors", {"read_weights()", "docs/interop.md"});
  write_file_atomically(folder_ / "code.pt", [](FileWriter& file) {
    zip::Writer archive([&](std::span<const std::byte> bytes) { file.write(bytes); });
    archive.add("code/data.pkl", std::string_view("\x80\x02"
                                                  "cos\nsystem\n."));
    archive.finish();
  });
  refuses("code.pt", {"code.pt", "os.system", "torch.save(model.state_dict(), file)"});
  StateTree state;
  state.set("w", torch::zeros({1000}));
  write_torch_file(folder_ / "damaged.pt", state);
  std::filesystem::resize_file(folder_ / "damaged.pt", 2000);
  refuses("damaged.pt", {"damaged.pt", "copy the file again"});
}

TEST_F(Interop, KeysThatBecomeTheSameTextAreRefused) {
  pickle::Dict dict;
  dict.entries = {{std::int64_t{1}, "a"}, {"1", "b"}};
  torch_file::write(folder_ / "twice.pt", dict, {});
  expect_error<CheckpointError>([&] { read_torch_file(folder_ / "twice.pt"); },
                                {"twice.pt", "the key '1' twice"});
  expect_error<CheckpointError>([&] { read_weights(folder_ / "twice.pt"); },
                                {"twice.pt", "a key that is no name", "got int", "read_torch_file()"});
  dict.entries = {{1.5, "a"}};
  torch_file::write(folder_ / "odd.pt", dict, {});
  expect_error<CheckpointError>([&] { read_torch_file(folder_ / "odd.pt"); },
                                {"odd.pt", "float", "texts or integers as keys", "store it as text"});
}

TEST_F(Interop, WeightsOfEveryFormatAreLoaded) {
  torch::nn::Linear source(3, 2);
  StateTree model;
  model.set("weight", source->weight.detach());
  model.set("bias", source->bias.detach());
  StateTree checkpoint;
  checkpoint.set("state_dict", model);
  write_weights(folder_ / "model.safetensors", {{"weight", source->weight}, {"bias", source->bias}});
  write_torch_file(folder_ / "plain.pt", model);
  write_lightning_checkpoint(folder_ / "last.ckpt", checkpoint);
  for (const auto& file :
       {folder_.path(), folder_ / "model.safetensors", folder_ / "plain.pt", folder_ / "last.ckpt"}) {
    torch::nn::Linear target(3, 2);
    load_weights(file, *target);
    EXPECT_TRUE(torch::equal(target->weight, source->weight)) << file;
    EXPECT_TRUE(torch::equal(target->bias, source->bias)) << file;
  }
}

TEST_F(Interop, WeightsOfAnotherModelAreRefusedByName) {
  StateTree model;
  model.set("weight", torch::ones({2, 4}));
  model.set("bias", torch::ones({2}));
  write_torch_file(folder_ / "other.pt", model);
  torch::nn::Linear target(3, 2);
  const auto before = target->bias.clone();
  expect_error<CheckpointError>([&] { load_weights(folder_ / "other.pt", *target); },
                                {"other.pt", "weight", "tensor Float [2, 3]", "tensor Float [2, 4]"});
  EXPECT_TRUE(torch::equal(target->bias, before));
  model.set("epoch", std::int64_t{3});
  write_torch_file(folder_ / "mixed.pt", model);
  expect_error<CheckpointError>([&] { read_weights(folder_ / "mixed.pt"); }, {"mixed.pt", "epoch", "int"});
}

TEST_F(Interop, NamesOfAFolderAreChangedByTheTable) {
  const auto matrix = torch::arange(6.0).view({2, 3});
  write_weights(folder_ / "model.safetensors",
                {{"h.0.c_attn.weight", matrix}, {"h.0.ln.weight", torch::ones({3})}, {"lm_head", matrix}});
  const std::vector<Rename> renames{
      {.pattern = R"(h\.(\d+)\.c_attn\.(.*))", .replacement = "blocks.$1.attention.$2", .transpose = true},
      {.pattern = "lm_head", .replacement = ""}};
  const auto tensors = read_huggingface(folder_.path(), renames);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_TRUE(torch::equal(tensors.at("blocks.0.attention.weight"), matrix.t()));
  EXPECT_TRUE(tensors.contains("h.0.ln.weight"));
  const Rename bad{.pattern = "(", .replacement = "x"};
  expect_error<ConfigError>([&] { read_huggingface(folder_.path(), std::span(&bad, 1)); },
                            {"regular expression", "("});
}

}  // namespace
}  // namespace lockstep
