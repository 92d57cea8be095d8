// Ranks that have different things to do: loaders with a batch for some of them, steps without a loss, an
// epoch that not all of them leave. What validation gave is printed.
#include <lockstep/lockstep.h>

#include <nlohmann/json.hpp>

#include "program_case.h"

namespace ls = lockstep;

namespace uneven_case {

struct CaseOptions {
  std::int64_t no_loss_on = -1;  // rank; -2: all
  std::int64_t empty_on = -1;
  std::int64_t skip_on = -1;
};

void describe(ls::OptionVisitor& v, CaseOptions& o) {
  v.field("no_loss_on", o.no_loss_on, "Rank whose second batch of training gives no loss; -2: all");
  v.field("empty_on", o.empty_on, "Rank whose second batch of training is none; -2: all");
  v.field("skip_on", o.skip_on, "Rank that skips the epoch at its second batch; -2: all");
}

bool applies(std::int64_t to, const ls::TrainContext& context) {
  return to == -2 || to == context.global_rank();
}

struct CaseImpl : ls::Module<ls::Example> {
  explicit CaseImpl(const CaseOptions& options_) : options(options_) {
    weight = register_parameter("weight", torch::zeros({1}));
  }
  void on_train_batch_start(ls::StepContext& step) override {
    if (step.batch_idx() == 1 && applies(options.skip_on, step)) step.skip_epoch();
  }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    if (step.batch_idx() == 1 && applies(options.no_loss_on, step)) return {};
    return (weight * batch.data.mean()).sum();
  }
  void validation_step(const ls::Example& batch, ls::StepContext& step) override {
    step.log("mean", batch.data.mean(), {.sync_dist = true});
    step.log("count", static_cast<double>(batch.data.size(0)),
             {.reduce_fx = ls::ReduceFx::kSum, .sync_dist = true});
  }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::SGD{.lr = 1.0}}; }

  CaseOptions options;
  torch::Tensor weight;
};
TORCH_MODULE(Case);

ls::Loader<ls::Example> numbers(std::int64_t from, std::int64_t to) {
  return ls::loader(ls::tensor_dataset(torch::arange(from, to, torch::kFloat).view({-1, 1})),
                    {.batch_size = 2});
}

// Whose second batch is none.
class WithoutSecond final : public ls::AnyLoader {
 public:
  explicit WithoutSecond(std::shared_ptr<ls::AnyLoader> loader) : loader_(std::move(loader)) {}
  std::int64_t num_batches(const ls::ShardSpec& spec) const override { return loader_->num_batches(spec); }
  std::int64_t num_samples() const override { return loader_->num_samples(); }
  std::int64_t batch_size() const override { return loader_->batch_size(); }
  std::unique_ptr<ls::BatchStream> stream(const ls::ShardSpec& spec, std::int64_t epoch,
                                          std::int64_t skip) const override {
    struct Stream final : ls::BatchStream {
      bool next(ls::AnyBatch& batch) override {
        const bool has_more = from->next(batch);
        if (at++ == 1) batch = {};
        return has_more;
      }
      std::unique_ptr<ls::BatchStream> from;
      std::int64_t at = 0;
    };
    auto stream = std::make_unique<Stream>();
    stream->from = loader_->stream(spec, epoch, skip);
    stream->at = skip;
    return stream;
  }

 private:
  std::shared_ptr<ls::AnyLoader> loader_;
};

int start(int argc, char** argv) {
  CaseOptions options;
  return ls::run(argc, argv, {.options = {ls::options("case", options)}}, [&](ls::Cli& cli) {
    ls::Trainer trainer(cli.trainer({.max_epochs = 2, .enable_progress_bar = false}));
    auto train = numbers(0, 16);
    if (options.empty_on == -2 || options.empty_on == trainer.global_rank())
      train = ls::Loader<ls::Example>(std::make_shared<WithoutSecond>(train));
    const Case model(options);
    trainer.fit(model, train, {numbers(0, 5), numbers(100, 101), numbers(10, 19)});
    const nlohmann::json seen{{"fit", trainer.callback_metrics()},
                              {"validate", trainer.validate(model, {numbers(0, 5), numbers(100, 101)})},
                              {"results", trainer.results()},
                              {"steps", trainer.global_step()}};
    trainer.print(seen.dump());
  });
}

const ProgramCase kCase{"uneven_case", start};

}  // namespace uneven_case
