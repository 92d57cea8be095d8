// Graphs: captured work does the same as work that is issued, to the bit; what cannot be captured is refused
// by name.

#include "sim/installed.h"

namespace lockstep::sim {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string message_of(const std::function<void()>& call) try {
  call();
  return "";
} catch (const c10::Error& error) {
  return error.what_without_backtrace();
}

void set_seed(std::uint64_t seed) {
  auto generator = at::globalContext().defaultGenerator(kSim);
  generator.set_current_seed(seed);
}

// A training step on static inputs, as whole-step graphs are made of.
class Step {
 public:
  Step() {
    torch::manual_seed(0);
    net_ = nn::Sequential(nn::Linear(20, 32), nn::ReLU(), nn::Dropout(0.25), nn::Linear(32, 5));
    net_->to(kSim);
    for (const auto& parameter : net_->parameters()) {
      averages_.push_back(at::zeros_like(parameter));
      squares_.push_back(at::zeros_like(parameter));
      steps_.push_back(at::zeros({}, sim_floats()));
    }
    set_seed(7);
  }
  void set_batch(int i) {
    torch::manual_seed(static_cast<std::uint64_t>(i));
    data_.copy_(at::randn({8, 20}), /*non_blocking=*/true);
    target_.copy_(at::randint(5, {8}), /*non_blocking=*/true);
  }
  void run() {
    for (auto& parameter : net_->parameters()) parameter.mutable_grad().reset();
    loss_ = F::cross_entropy(net_->forward(data_), target_);
    loss_.backward();
    const at::NoGradGuard no_grad;
    auto parameters = net_->parameters();
    std::vector<at::Tensor> gradients;
    for (auto& parameter : parameters) gradients.push_back(parameter.grad());
    at::_foreach_add_(steps_, 1);
    at::_fused_adamw_(parameters, gradients, averages_, squares_, {}, steps_, 1e-2, 0.9, 0.999, 0.01, 1e-8,
                      false, false);
  }
  std::vector<at::Tensor> results() const {
    std::vector<at::Tensor> all = {on_cpu(loss_.detach())};
    for (const auto& parameter : net_->parameters()) all.push_back(on_cpu(parameter.detach()));
    return all;
  }

 private:
  nn::Sequential net_{nullptr};
  std::vector<at::Tensor> averages_, squares_, steps_;
  at::Tensor data_ = at::zeros({8, 20}, sim_floats());
  at::Tensor target_ = at::zeros({8}, sim_floats().dtype(at::kLong));
  at::Tensor loss_;
};

class SimGraphs : public SimTest {};

TEST_F(SimGraphs, TrainAsUncapturedStepsDo) {
  constexpr int kWarmUp = 2, kSteps = 6;
  Step issued, captured;
  set_seed(7);
  for (int i = 0; i < kSteps; ++i) {
    issued.set_batch(i);
    issued.run();
  }
  const auto expected = issued.results();

  set_seed(7);
  const auto side = stream(0, 6);
  order(stream(0, 0), side);
  const c10::StreamGuard guard(side);
  for (int i = 0; i < kWarmUp; ++i) {
    captured.set_batch(i);
    captured.run();
  }
  Graph graph;
  graph.begin();
  captured.run();
  graph.end();
  EXPECT_GT(graph.kernels(), 10u);
  const auto before = counters();
  take_host_syncs();
  for (int i = kWarmUp; i < kSteps; ++i) {
    captured.set_batch(i);
    graph.replay();
  }
  EXPECT_EQ(counters().segments, before.segments);
  EXPECT_EQ(counters().allocations, before.allocations);
  EXPECT_THAT(take_host_syncs(), IsEmpty());
  const auto found = captured.results();
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(torch::equal(found[i], expected[i])) << i;
  EXPECT_THAT(take_reports(), IsEmpty());
}

TEST_F(SimGraphs, RunNothingWhenTheyAreCaptured) {
  const auto tensor = at::ones({8}, sim_floats());
  Graph graph;
  graph.begin();
  tensor.add_(1);
  graph.end();
  EXPECT_EQ(on_cpu(tensor)[0].item<float>(), 1);
  graph.replay();
  graph.replay();
  EXPECT_EQ(on_cpu(tensor)[0].item<float>(), 3);
}

// The side stream waits for the default one.
void double_on_side_stream(const at::Tensor& tensor) {
  order(stream(0, 0), stream(0, 3));
  const c10::StreamGuard guard(stream(0, 3));
  tensor.mul_(2);
}

TEST_F(SimGraphs, TakeInStreamsThatWaitForThem) {
  const auto tensor = at::ones({1000}, sim_floats());
  Graph graph;
  graph.begin();
  double_on_side_stream(tensor);
  order(stream(0, 3), stream(0, 0));
  tensor.add_(1);
  graph.end();
  for (int i = 0; i < 3; ++i) graph.replay();
  EXPECT_EQ(on_cpu(tensor)[0].item<float>(), 15);
  EXPECT_THAT(take_reports(), IsEmpty());
}

TEST_F(SimGraphs, AreReportedWhereTheirStreamsRace) {
  const auto tensor = at::ones({1000}, sim_floats());
  Graph graph;
  graph.begin();
  double_on_side_stream(tensor);
  tensor.add_(1);
  order(stream(0, 3), stream(0, 0));
  graph.end();
  EXPECT_THAT(take_reports(), IsEmpty());
  graph.replay();
  EXPECT_THAT(take_reports(),
              ElementsAre(::testing::StartsWith("read before ready: aten::add.out reads on sim:0 stream 0")));
}

TEST_F(SimGraphs, DoNotOrderWhatTheirStreamsDoOtherwise) {
  const auto tensor = at::ones({1000}, sim_floats());
  Graph graph;
  graph.begin();
  double_on_side_stream(tensor);
  order(stream(0, 3), stream(0, 0));
  graph.end();
  {
    const c10::StreamGuard guard(stream(0, 3));
    tensor.add_(1);
  }
  take_reports();  // add_() does not wait for ones()
  graph.replay();
  EXPECT_THAT(take_reports(),
              ElementsAre(HasSubstr("reads on sim:0 stream 19 what aten::add.out writes on sim:0 stream 3")));
}

TEST_F(SimGraphs, RefuseWhatMakesTheHostWait) {
  const auto tensor = at::ones({8}, sim_floats());
  const auto refused = [&](const std::function<void()>& work) {
    Graph graph;
    graph.begin();
    const auto message = message_of(work);
    EXPECT_THAT(message, HasSubstr("not permitted when stream is capturing"));
    EXPECT_THAT(message_of([&] { graph.end(); }), HasSubstr("makes the host wait"));
    return message;
  };
  EXPECT_THAT(refused([&] { tensor.sum().item(); }), HasSubstr("item()"));
  EXPECT_THAT(refused([&] { on_cpu(tensor); }), HasSubstr("copy to the host"));
  EXPECT_THAT(refused([&] { tensor.nonzero(); }), HasSubstr("aten::nonzero"));
  EXPECT_THAT(refused([&] { stream(0, 0).synchronize(); }), HasSubstr("synchronizeStream"));
  EXPECT_THAT(refused([&] { at::ones({8}).to(kSim); }), HasSubstr("copy to the device"));
  Graph graph;
  graph.begin();
  EXPECT_THAT(message_of([&] { tensor.copy_(at::ones({8}), /*non_blocking=*/true); }),
              HasSubstr("not pinned"));
  EXPECT_THAT(message_of([&] { graph.end(); }), HasSubstr("not pinned"));
}

TEST_F(SimGraphs, RefuseEventsFromOutsideAndStreamsThatDoNotJoin) {
  c10::Event outside(kDeviceType);
  outside.record(stream(0, 3));
  {
    Graph graph;
    graph.begin();
    EXPECT_THAT(message_of([&] { outside.block(stream(0, 0)); }), HasSubstr("outside of the graph"));
  }
  {
    Graph graph;
    graph.begin();
    order(stream(0, 0), stream(0, 3));
    {
      const c10::StreamGuard guard(stream(0, 3));
      at::ones({8}, sim_floats());
    }
    EXPECT_THAT(message_of([&] { graph.end(); }),
                HasSubstr("sim:0 stream 0 does not wait for sim:0 stream 3"));
  }
  Graph graph;
  graph.begin();
  EXPECT_THAT(message_of([&] { Graph().begin(); }), HasSubstr("another graph"));
  EXPECT_THAT(message_of([&] { graph.replay(); }), HasSubstr("after it was captured"));
  c10::Event inside(kDeviceType);
  inside.record(stream(0, 0));
  graph.end();
  EXPECT_THAT(message_of([&] { inside.block(stream(0, 0)); }), HasSubstr("recorded in a graph"));
}

TEST_F(SimGraphs, KeepTheirMemory) {
  Graph graph;
  graph.begin();
  auto made = at::ones({5000}, sim_floats());
  at::full({5000}, 2, sim_floats());
  graph.end();
  const auto other = at::full({5000}, 3, sim_floats());
  graph.replay();
  EXPECT_EQ(on_cpu(made)[0].item<float>(), 1);
  EXPECT_EQ(on_cpu(other)[0].item<float>(), 3);
  made.reset();
  graph.replay();
  EXPECT_THAT(take_reports(), IsEmpty());
  auto lost = at::ones({8}, sim_floats());
  Graph of_lost;
  of_lost.begin();
  lost.add_(1);
  of_lost.end();
  lost.reset();
  of_lost.replay();
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("uses memory that was freed")));
}

}  // namespace
}  // namespace lockstep::sim
