#include <gmock/gmock.h>
#include <torch/torch.h>

#include <set>

#include <lockstep/base/error.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/file_dataset.h>
#include <lockstep/data/torch_dataset.h>
#include <lockstep/formats/safetensors.h>

#include "data/recorder.h"
#include "data/sha256.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using test::expect_error;
using test::Indices;
using test::TemporaryFolder;

const std::filesystem::path kDigits = test::in_repository("data/digits.csv.gz");

Indices all_indices(std::int64_t size) {
  Indices indices(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) indices[static_cast<std::size_t>(i)] = i;
  return indices;
}

Example whole(const DatasetPtr<Example>& dataset) { return dataset->get_batch(all_indices(dataset->size())); }

std::string fingerprint(const at::Tensor& tensor) {
  const at::Tensor rows = tensor.contiguous();
  return test::sha256({static_cast<const char*>(rows.const_data_ptr()), rows.nbytes()});
}

/// Samples 0 to n-1, whose data and target are their index.
DatasetPtr<Example> counting(std::int64_t n) {
  return tensor_dataset(torch::arange(n).to(torch::kFloat).unsqueeze(1), torch::arange(n));
}

Indices targets(const DatasetPtr<Example>& dataset) {
  const at::Tensor target = whole(dataset).target;
  return {target.const_data_ptr<std::int64_t>(), target.const_data_ptr<std::int64_t>() + target.numel()};
}

TEST(TensorDataset, GivesTheRowsThatWereAsked) {
  const at::Tensor data = torch::rand({5, 2, 3});
  const at::Tensor target = torch::arange(5);
  const Indices indices{4, 0, 0, 2};
  const Example batch = TensorDataset(data, target).get_batch(indices);
  const at::Tensor list = torch::tensor(indices);
  EXPECT_TRUE(batch.data.equal(data.index_select(0, list)));
  EXPECT_TRUE(batch.target.equal(target.index_select(0, list)));
  EXPECT_EQ(batch_size(batch), 4);
}

TEST(TensorDataset, TakesViewsAndLeavesTheOriginalAlone) {
  const at::Tensor data = torch::rand({3, 4});
  const TensorDataset dataset(data.t());
  Example batch = dataset.get_batch(Indices{1, 3});
  EXPECT_TRUE(batch.data.equal(data.t().index_select(0, torch::tensor({1, 3}))));
  EXPECT_FALSE(batch.target.defined());
  batch.data.zero_();
  EXPECT_TRUE(dataset.get_batch(Indices{1}).data.equal(data.t().narrow(0, 1, 1)));
}

TEST(TensorDataset, NamesWhatDoesNotFit) {
  expect_error<DataError>(
      [] {
        tensor_dataset(torch::rand({3, 2}), torch::arange(4));
      },
      {"3 targets", "got 4"});
  expect_error<DataError>([] { tensor_dataset({}); }, {"undefined"});
  expect_error<DataError>([] { tensor_dataset(torch::tensor(1.0)); }, {"scalar"});
  expect_error<DataError>([] { counting(3)->get_batch(Indices{3}); }, {"index 3", "index < 3"});
  expect_error<DataError>([] { counting(3)->get_batch(Indices{-1}); }, {"index -1"});
}

TEST(Split, DividesAPermutation) {
  const auto [first, second] = split(counting(11), 0.8, {.seed = 3});
  EXPECT_EQ(first->size(), 9);
  EXPECT_EQ(second->size(), 2);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const at::Tensor order = torch::randperm(11, generator, torch::kLong);
  EXPECT_TRUE(whole(first).target.equal(order.narrow(0, 0, 9)));
  EXPECT_TRUE(whole(second).target.equal(order.narrow(0, 9, 2)));
}

TEST(Split, KeepsTheOrderWithoutShuffle) {
  const auto [first, second] = split(counting(4), 0.5, {.shuffle = false});
  EXPECT_EQ(targets(first), (Indices{0, 1}));
  EXPECT_EQ(targets(second), (Indices{2, 3}));
}

TEST(Split, NamesAFractionThatIsNone) {
  for (const double fraction : {0.0, 1.0, -0.5, 2.0, std::nan("")}) {
    expect_error<ConfigError>([&] { split(counting(10), fraction); }, {"fraction", "between 0 and 1"});
  }
  expect_error<DataError>([] { split(counting(3), 0.1); }, {"empty", "3 samples"});
}

TEST(Subset, GivesTheSamplesInItsOrder) {
  const auto odd = subset(counting(6), {5, 3, 1, 1});
  EXPECT_EQ(targets(odd), (Indices{5, 3, 1, 1}));
  EXPECT_EQ(targets(subset(odd, {2, 0})), (Indices{1, 5}));
  expect_error<DataError>([&] { subset(odd, {4}); }, {"index 4", "index < 4"});
}

TEST(CsvDataset, ReadsTheDigitsAsTheReferenceRunsDid) {
  const auto digits = csv_dataset(kDigits, {.label = -1, .scale = 1.0 / 16});
  const Example all = whole(digits);
  EXPECT_EQ(all.data.sizes(), (at::IntArrayRef{1797, 64}));
  EXPECT_EQ(all.data.scalar_type(), at::kFloat);
  EXPECT_EQ(all.target.sizes(), at::IntArrayRef{1797});
  EXPECT_EQ(fingerprint(all.data), "9f578524b6cec1fc800cc52dfc87ebe56264983d490aa72a4bd928ba2570ec77");
  EXPECT_EQ(fingerprint(all.target), "a3c91c262eddcf7ba8f0e37507c30284493c9b20412ffe4af30d536401f7ba21");
}

TEST(CsvDataset, TakesTheLabelFromAnyColumn) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.csv", "1,2,3\n4,5,6\n");
  const Example middle = whole(csv_dataset(path, {.label = 1}));
  EXPECT_TRUE(middle.data.equal(torch::tensor({{1.f, 3.f}, {4.f, 6.f}})));
  EXPECT_TRUE(middle.target.equal(torch::tensor({2, 5}, torch::kLong)));
  const Example first = whole(csv_dataset(path, {.label = 0, .scale = 2, .label_dtype = at::kFloat}));
  EXPECT_TRUE(first.data.equal(torch::tensor({{4.f, 6.f}, {10.f, 12.f}})));
  EXPECT_TRUE(first.target.equal(torch::tensor({1.f, 4.f})));
  const Example none = whole(csv_dataset(path));
  EXPECT_EQ(none.data.size(1), 3);
  EXPECT_FALSE(none.target.defined());
}

TEST(IdxDataset, ReadsMnistsFiles) {
  const TemporaryFolder folder;
  const auto pictures =
      folder.file("images.idx", {"\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x03\0\x33\x66\x99\xcc\xff", 22});
  const auto labels = folder.file("labels.idx", {"\0\0\x08\x01\0\0\0\x02\x07\x02", 10});
  const Example all = whole(idx_dataset(pictures, labels, {.scale = 1.0 / 255, .channel_dim = true}));
  EXPECT_EQ(all.data.sizes(), (at::IntArrayRef{2, 1, 1, 3}));
  EXPECT_TRUE(all.data.flatten().allclose(torch::tensor({0.F, .2F, .4F, .6F, .8F, 1.F})));
  EXPECT_TRUE(all.target.equal(torch::tensor({7, 2}, torch::kLong)));
  const Example alone = whole(idx_dataset(pictures));
  EXPECT_TRUE(alone.data[1].equal(torch::tensor({{153.F, 204.F, 255.F}})));
  EXPECT_FALSE(alone.target.defined());
}

TEST(IdxDataset, NamesWhatIsWrong) {
  const TemporaryFolder folder;
  const auto three = folder.file("three.idx", {"\0\0\x08\x01\0\0\0\x03\1\2\3", 11});
  const auto two = folder.file("two.idx", {"\0\0\x08\x01\0\0\0\x02\1\2", 10});
  expect_error<DataError>([&] { idx_dataset(three, two); }, {"three.idx", "two.idx", "3 labels", "got 2"});
  expect_error<DataError>([&] { idx_dataset(folder / "none.idx"); }, {"none.idx"});
  const auto halves = folder.file("halves.idx", {"\0\0\x0D\x01\0\0\0\x03\x40\0\0\0\x3F\0\0\0\0\0\0\0", 20});
  expect_error<DataError>([&] { idx_dataset(three, halves); },
                          {"label 1 of", "halves.idx", "an integer of type Long", "0.5", "label_dtype"});
  const auto large = folder.file("large.idx", {"\0\0\x0C\x01\0\0\0\x03\0\0\0\x01\0\0\x01\x2C\0\0\0\x02", 20});
  expect_error<DataError>([&] { idx_dataset(three, large, {.label_dtype = at::kByte}); },
                          {"label 1 of", "large.idx", "an integer of type Byte", "300"});
  expect_error<DataError>([&] { idx_dataset(three, large, {.label_dtype = at::kBool}); }, {"300"});
  const auto negative = folder.file("negative.idx", {"\0\0\x09\x01\0\0\0\x03\0\xFF\0", 11});
  expect_error<DataError>([&] { idx_dataset(three, negative, {.label_dtype = at::kUInt64}); },
                          {"negative.idx", "-1"});
  const auto kept = whole(idx_dataset(three, halves, {.label_dtype = at::kFloat}));
  EXPECT_EQ(kept.target[1].item<float>(), 0.5F);
}

TEST(Collate, StacksSamplesOfOneShape) {
  const std::vector<Example> samples{{torch::ones({2}), torch::tensor(1)},
                                     {torch::zeros({2}), torch::tensor(2)}};
  const Example batch = collate(std::span<const Example>(samples));
  EXPECT_TRUE(batch.data.equal(torch::tensor({{1.F, 1.F}, {0.F, 0.F}})));
  EXPECT_TRUE(batch.target.equal(torch::tensor({1, 2}, torch::kLong)));
  const std::vector<at::Tensor> tensors{torch::ones({2}), torch::ones({2}), torch::ones({3})};
  expect_error<DataError>([&] { collate(std::span<const at::Tensor>(tensors)); },
                          {"sample 2", "Float [2]", "got Float [3]"});
  const std::vector<Example> mixed{{torch::ones({2}), torch::tensor(1)}, {torch::ones({2}), {}}};
  expect_error<DataError>([&] { collate(std::span<const Example>(mixed)); },
                          {"target of sample 1", "got none"});
}

TEST(CsvDataset, NamesWhatIsWrong) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.csv", "a,b\n1,2\n3,4.5\n");
  expect_error<ConfigError>([&] { csv_dataset(path, {.label = 2}); }, {"t.csv", "-2 to 1", "got 2"});
  expect_error<ConfigError>([&] { csv_dataset(path, {.label = -3}); }, {"got -3"});
  expect_error<DataError>([&] { csv_dataset(path, {.label = 1}); },
                          {"t.csv:3", "4.5", "integer", "label_dtype = torch::kFloat"});
  const auto spaced = folder.file("s.csv", "a,b\n\n1,2\n3,4.5\n");
  expect_error<DataError>([&] { csv_dataset(spaced, {.label = 1}); }, {"s.csv:4", "4.5"});
  expect_error<DataError>([&] { csv_dataset(folder / "none.csv"); }, {"none.csv", "No such file"});
  expect_error<DataError>([&] { csv_dataset(folder.file("e.csv", "")); }, {"e.csv", "empty file"});
  const auto large = folder.file("l.csv", "1,300\n");
  expect_error<DataError>([&] { csv_dataset(large, {.label = 1, .label_dtype = at::kByte}); },
                          {"l.csv:1", "300"});
}

class SafetensorsDataset : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto bytes = [](const at::Tensor& t) {
      return std::span(static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes());
    };
    const std::vector<safetensors::TensorView> tensors{
        {.name = "x", .dtype = safetensors::Dtype::kBF16, .shape = {3, 2}, .bytes = bytes(x_)},
        {.name = "y", .dtype = safetensors::Dtype::kI64, .shape = {3}, .bytes = bytes(y_)},
        {.name = "few", .dtype = safetensors::Dtype::kI64, .shape = {2}, .bytes = bytes(y_.narrow(0, 0, 2))}};
    safetensors::write(path_, tensors);
  }

  at::Tensor x_ = torch::rand({3, 2}).to(torch::kBFloat16);
  at::Tensor y_ = torch::arange(3);
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "d.safetensors";
};

TEST_F(SafetensorsDataset, ReadsTensorsByName) {
  const Example both = whole(safetensors_dataset(path_));
  EXPECT_TRUE(both.data.equal(x_));
  EXPECT_TRUE(both.target.equal(y_));
  EXPECT_FALSE(safetensors_dataset(path_, {.y = ""})->get_batch(Indices{0}).target.defined());
}

TEST_F(SafetensorsDataset, NamesFileAndTensor) {
  expect_error<DataError>([&] { safetensors_dataset(path_, {.x = "X"}); }, {path_.string(), "'X'", "'few'"});
  expect_error<DataError>([&] { safetensors_dataset(path_, {.y = "few"}); }, {"3 targets", "got 2"});
  expect_error<DataError>([&] { safetensors_dataset(folder_ / "none"); }, {(folder_ / "none").string()});
  expect_error<DataError>([&] { safetensors_dataset(folder_.file("bad", "{}")); }, {"bad", "too few"});
}

struct Squares : torch::data::datasets::Dataset<Squares> {
  torch::data::Example<> get(std::size_t index) override {
    const auto value = static_cast<float>(index);
    return {torch::full({2}, value * value), torch::tensor(static_cast<std::int64_t>(index))};
  }
  std::optional<std::size_t> size() const override { return 10; }
};

struct Unsized : Squares {
  std::optional<std::size_t> size() const override { return std::nullopt; }
};

struct Untargeted : torch::data::datasets::Dataset<Untargeted, torch::data::TensorExample> {
  torch::data::TensorExample get(std::size_t) override { return torch::ones({2}); }
  std::optional<std::size_t> size() const override { return 4; }
};

TEST(FromTorch, StacksSamples) {
  const auto squares = from_torch(Squares());
  EXPECT_EQ(squares->size(), 10);
  const Example batch = squares->get_batch(Indices{3, 1});
  EXPECT_TRUE(batch.data.equal(torch::tensor({{9.f, 9.f}, {1.f, 1.f}})));
  EXPECT_TRUE(batch.target.equal(torch::tensor({3, 1}, torch::kLong)));
  EXPECT_FALSE(from_torch(Untargeted())->get_batch(Indices{0, 1}).target.defined());
  expect_error<DataError>([] { from_torch(Unsized()); }, {"size"});
}

TEST(CsvDataset, LabelsOutliveTheFile) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.csv", "1,7.5\n");
  const auto dataset = csv_dataset(path, {.label = 1, .label_dtype = at::kDouble});
  const std::vector<double> others(64, -1);  // in memory that the table has had
  EXPECT_EQ(whole(dataset).target.item<double>(), 7.5);
}

TEST(TensorDataset, TakesConjugatesAndNegativesAsTheyRead) {
  const auto numbers = torch::complex(torch::ones({2, 1}), torch::full({2, 1}, 3.0F));
  EXPECT_TRUE(torch::equal(whole(tensor_dataset(numbers.conj())).data, numbers.conj().resolve_conj()));
  const auto imaginary = torch::imag(numbers.conj());
  EXPECT_TRUE(torch::equal(whole(tensor_dataset(imaginary)).data, torch::full({2, 1}, -3.0F)));
}

}  // namespace
}  // namespace lockstep
