#include "data.h"

#include <numeric>

namespace parity {
namespace {

using Indices = std::vector<std::int64_t>;

class Samples final : public ls::Dataset<Rows> {
 public:
  Samples(at::Tensor x, at::Tensor y) : x_(std::move(x)), y_(std::move(y)) {}
  std::int64_t size() const override { return x_.size(0); }
  Rows get_batch(std::span<const std::int64_t> indices) const override {
    const auto index = torch::tensor(at::ArrayRef<std::int64_t>(indices.data(), indices.size()));
    return {x_.index_select(0, index), y_.index_select(0, index), {indices.begin(), indices.end()}};
  }

 private:
  at::Tensor x_;
  at::Tensor y_;
};

Indices range(std::int64_t begin, std::int64_t end) {
  Indices numbers(static_cast<std::size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

ls::Example whole(const ls::DatasetPtr<ls::Example>& dataset) {
  return dataset->get_batch(range(0, dataset->size()));
}

ls::DatasetPtr<Rows> classification(const Case& golden) {
  const auto& data = golden.json.at("data");
  const auto all = whole(ls::safetensors_dataset(golden.data_file(), {.x = data.at("x"), .y = data.at("y")}));
  const std::int64_t rows = data.at("rows");
  return std::make_shared<Samples>(all.data.narrow(0, 0, rows), all.target.narrow(0, 0, rows));
}

// Window i is tokens[stride*i : stride*i + stride + 1]: inputs, and the same one further as targets.
ls::DatasetPtr<Rows> windows(const Case& golden) {
  const auto& data = golden.json.at("data");
  const std::int64_t stride = data.at("stride");
  const auto tokens =
      whole(ls::safetensors_dataset(golden.data_file(), {.x = data.at("tokens"), .y = ""})).data;
  const auto all = tokens.unfold(0, stride + 1, stride);
  return std::make_shared<Samples>(all.narrow(1, 0, stride), all.narrow(1, 1, stride));
}

ls::DatasetPtr<Rows> samples_of(const Case& golden) {
  const auto& type = golden.json.at("data").at("type");
  if (type == "classification") return classification(golden);
  if (type == "lm_windows") return windows(golden);
  golden.refuse("data.type", type, "classification or lm_windows");
}

// The order in which samplers hand out `per_rank`: rank r takes the entries r, r + world, ...
Indices dealt_out(const std::vector<Indices>& per_rank) {
  Indices order;
  for (std::size_t i = 0; i < per_rank[0].size(); ++i) {
    for (const auto& own : per_rank) {
      if (i < own.size()) order.push_back(own[i]);
    }
  }
  return order;
}

// Micro-batch k of rank r holds the windows (k * world + r) * batch_size + b.
Indices window_order(const Case& golden) {
  const std::int64_t world = golden.json.at("world_size"), size = golden.json.at("batch_size");
  std::vector<Indices> per_rank(static_cast<std::size_t>(world));
  for (std::int64_t k = 0; k < golden.json.at("max_steps").get<std::int64_t>(); ++k) {
    for (std::int64_t rank = 0; rank < world; ++rank) {
      const auto begin = (k * world + rank) * size;
      for (std::int64_t b = begin; b < begin + size; ++b)
        per_rank[static_cast<std::size_t>(rank)].push_back(b);
    }
  }
  return dealt_out(per_rank);
}

}  // namespace

Data::Data(const Case& golden) : golden_(golden), samples_(samples_of(golden)) {}

ls::Loader<Rows> Data::training() const {
  const auto& sampler = golden_.json.at("sampler");
  const bool windows = sampler.at("type") == "windows";
  return ls::loader(windows ? ls::subset(samples_, window_order(golden_)) : samples_,
                    {.batch_size = golden_.json.at("batch_size"),
                     .shuffle = sampler.value("shuffle", false),
                     .drop_last = golden_.json.at("loader").at("drop_last")});
}

std::optional<ls::Loader<Rows>> Data::validation() const {
  if (!golden_.json.contains("validation")) return std::nullopt;
  std::vector<Indices> per_rank;
  std::int64_t batch_size = 1;  // of all but a rank's last batch
  for (const auto& batches : golden_.json.at("validation").at("batches_per_rank")) {
    auto& own = per_rank.emplace_back();
    for (const auto& batch : batches) {
      const auto rows = range(batch.at(0), batch.at(1));
      own.insert(own.end(), rows.begin(), rows.end());
      batch_size = std::max(batch_size, static_cast<std::int64_t>(rows.size()));
    }
  }
  return ls::loader(ls::subset(samples_, dealt_out(per_rank)), {.batch_size = batch_size});
}

ls::Loader<Rows> Data::evaluation() const {
  const auto& eval = golden_.json.at("eval");
  const bool part = eval.contains("windows");
  const auto rows =
      part ? range(eval.at("windows").at(0), eval.at("windows").at(1)) : range(0, samples_->size());
  return ls::loader(ls::subset(samples_, rows), {.batch_size = static_cast<std::int64_t>(rows.size())});
}

}  // namespace parity
