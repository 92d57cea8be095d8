// Changing the tensors of batches of every shape, and of whole streams.
#include <gtest/gtest.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/loader.h>
#include <lockstep/torch.h>

namespace own {

struct Rows {
  torch::Tensor x;
  std::string name;
};

Rows with_tensors(const Rows& rows, const lockstep::TensorChange& change) {
  return {change(rows.x), rows.name};
}

struct Unknown {
  torch::Tensor x;
};

}  // namespace own

namespace lockstep {
namespace {

at::Tensor doubled(const at::Tensor& tensor) { return tensor * 2; }

template <class Batch>
Batch changed(const Batch& batch) {
  const AnyBatch any(std::make_shared<const Batch>(batch), 3);
  const auto result = any.with_tensors(doubled);
  EXPECT_EQ(result.size(), 3);
  return result.template get<Batch>();
}

float value(const at::Tensor& tensor) { return tensor.item<float>(); }

TEST(BatchTensors, AreChangedInEveryKindOfBatch) {
  const auto one = torch::ones({});
  EXPECT_EQ(value(changed(one)), 2);
  const auto example = changed(Example{.data = one, .target = {}});
  EXPECT_EQ(value(example.data), 2);
  EXPECT_FALSE(example.target.defined());
  EXPECT_EQ(value(changed(std::vector<Example>{{one, one}})[0].target), 2);
  EXPECT_EQ(value(changed(std::pair(one, 7)).first), 2);
  const auto tuple =
      changed(std::tuple(std::vector{one}, std::optional<Example>({one, one}), std::string("a")));
  EXPECT_EQ(value(std::get<0>(tuple)[0]), 2);
  EXPECT_EQ(value(std::get<1>(tuple)->target), 2);
  EXPECT_EQ(std::get<2>(tuple), "a");
  const auto rows = changed(own::Rows{.x = one, .name = "b"});
  EXPECT_EQ(value(rows.x), 2);
  EXPECT_EQ(rows.name, "b");
  EXPECT_EQ(value(changed(own::Unknown{.x = one}).x), 1);
  EXPECT_EQ(value(one), 1);
}

TEST(BatchTensors, ThatStayLeaveTheBatchAsItIs) {
  const AnyBatch batch(std::make_shared<const Example>(Example{torch::ones({}), torch::ones({})}), 1);
  const auto same = batch.with_tensors([](const at::Tensor& tensor) { return tensor; });
  EXPECT_EQ(&same.get<Example>(), &batch.get<Example>());
}

TEST(BatchTensors, OfAStreamAreChangedBatchByBatch) {
  const auto data = loader(tensor_dataset(torch::arange(6.0F)), {.batch_size = 2});
  const auto stream = with_tensors(data.any().stream({}, 0), doubled);
  AnyBatch batch;
  float sum = 0;
  int batches = 0;
  for (; stream->next(batch); ++batches) sum += batch.get<Example>().data.sum().item<float>();
  EXPECT_EQ(batches, 3);
  EXPECT_EQ(sum, 30);
}

TEST(BatchTensors, AreChangedInWhicheverOfAVariant) {
  using Either = std::variant<Example, torch::Tensor, std::string>;
  const auto one = torch::ones({});
  EXPECT_EQ(value(std::get<torch::Tensor>(changed(Either(one)))), 2);
  EXPECT_EQ(value(std::get<Example>(changed(Either(Example{one, {}}))).data), 2);
  EXPECT_EQ(std::get<std::string>(changed(Either(std::string("text")))), "text");
}

}  // namespace
}  // namespace lockstep
