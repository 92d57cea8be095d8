// What averaging costs in a step, in six ways: dist_train_buckets --world-size=2 --num-iter=30
#include <chrono>
#include <functional>
#include <iomanip>

#include "bucket.h"
#include "own_ddp.h"
#include "tutorial.h"

namespace ls = lockstep;
namespace nn = torch::nn;

struct Args : tutorial::SpawnArgs {
  int num_iter = 10;
  int layers = 16;
  int width = 256;
  int batch_size = 32;
  double bucket_mb = 1;
  bool prints = true;  // no flag
};

void describe(ls::OptionVisitor& v, Args& args) {
  describe(v, static_cast<tutorial::SpawnArgs&>(args));
  v.field("num-iter", args.num_iter, "Steps of each way", ls::at_least(1));
  v.field("layers", args.layers, "Linear layers of the model", ls::at_least(1));
  v.field("width", args.width, "Their inputs and outputs", ls::at_least(1));
  v.field("batch-size", args.batch_size, "Rows of a rank's batch", ls::at_least(1));
  v.field("bucket-mb", args.bucket_mb, "MiB at which a bucket is closed", ls::more_than(0));
}

nn::Sequential make_model(const Args& args) {
  torch::manual_seed(0);
  nn::Sequential model;
  for (int layer = 0; layer < args.layers; ++layer) {
    model->push_back(nn::Linear(args.width, args.width));
    model->push_back(nn::ReLU());
  }
  return model;
}

std::size_t cap_bytes(const Args& args) { return static_cast<std::size_t>(args.bucket_mb * (1 << 20)); }

// One collective for each gradient, when backward is over.
void average_each(const ls::Communicator& group, const std::vector<torch::Tensor>& params) {
  for (const auto& param : params) group.all_reduce(param.grad(), ls::ReduceOp::kAvg);
}

// One collective for each bucket, when backward is over.
void average_buckets(const ls::Communicator& group, std::vector<tutorial::Bucket>& buckets) {
  for (auto& bucket : buckets) {
    for (std::size_t place = 0; place < bucket.parameters().size(); ++place) bucket.take(place);
    bucket.start(group);
    bucket.finish();
  }
}

// Prints the milliseconds of a step: what the fastest tenth of the steps took, which other programs on the
// machine have disturbed least, on the rank where that is largest.
void measure(const char* name, const ls::Communicator& group, const Args& args, nn::Sequential model,
             const std::function<void(const torch::Tensor& loss)>& backward) {
  torch::optim::SGD optimizer(model->parameters(), 0.001);
  const auto input = torch::rand({args.batch_size, args.width});
  std::vector<double> times;
  for (int i = 0; i < args.num_iter; ++i) {
    group.barrier();
    const auto began = std::chrono::steady_clock::now();
    optimizer.zero_grad();
    backward(model->forward(input).square().mean());
    optimizer.step();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    times.push_back(took.count());
  }
  std::ranges::sort(times);
  const auto least = torch::full({}, times[times.size() / 10], torch::kDouble);
  group.all_reduce(least, ls::ReduceOp::kMax);
  if (group.rank() != 0 || !args.prints) return;
  std::cout << std::left << std::setw(28) << name << std::right << std::setw(8) << std::fixed
            << std::setprecision(2) << least.item<double>() << " ms" << std::endl;
}

void measure_all(const ls::Communicator& group, const Args& args) {
  const auto local = [](const torch::Tensor& loss) { loss.backward(); };

  measure("nothing is averaged", group, args, make_model(args), local);

  auto model = make_model(args);
  measure("each gradient, afterwards", group, args, model, [&](const torch::Tensor& loss) {
    loss.backward();
    average_each(group, model->parameters());
  });

  model = make_model(args);
  for (const auto& param : model->parameters()) {
    ls::register_post_accumulate_grad_hook(
        param, [&](const torch::Tensor& p) { group.all_reduce(p.grad(), ls::ReduceOp::kAvg); });
  }
  measure("each gradient, in its hook", group, args, model, local);

  model = make_model(args);
  auto buckets = tutorial::make_buckets(model->parameters(), cap_bytes(args));
  measure("buckets, afterwards", group, args, model, [&](const torch::Tensor& loss) {
    loss.backward();
    average_buckets(group, buckets);
  });

  model = make_model(args);
  tutorial::OwnDdp own(*model, group, cap_bytes(args));
  measure("buckets, while backward runs", group, args, model,
          [&](const torch::Tensor& loss) { own.backward(loss); });

  model = make_model(args);
  ls::DdpEngine engine(*model, group, {.bucket_cap_mb = args.bucket_mb});
  measure("ls::Ddp", group, args, model, [&](const torch::Tensor& loss) { engine.backward(loss); });
}

void train_dist(int rank, const Args& args) {
  at::set_num_threads(ls::threads_per_rank());
  const auto group = ls::init_process_group({.backend = "gloo", .rank = rank, .world_size = args.world_size});
  // Once unseen: what comes first would pay for memory that those behind it find.
  auto warm_up = args;
  warm_up.prints = false;
  measure_all(group, warm_up);
  measure_all(group, args);
}

int main(int argc, char** argv) {
  return ls::run_rank([&] {
    const auto args = tutorial::parse_args<Args>(argc, argv);

    tutorial::start(args, train_dist, std::tuple(args));
  });
}
