// Buffers that a part of a model writes to in forward are written once, whatever form of checkpointing runs
// it again.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include <lockstep/parallel/activations.h>
#include <lockstep/parallel/sync_batch_norm.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "ddp_support.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;

// A layer that writes, between a linear one and the result.
struct WriterImpl : nn::Module {
  using Forward = std::function<at::Tensor(WriterImpl&, const at::Tensor&)>;
  explicit WriterImpl(Forward of) : run(std::move(of)) { register_module("linear", linear); }
  at::Tensor forward(const at::Tensor& x) { return run(*this, x); }
  at::Tensor state() { return named_buffers()["state"]; }

  nn::Linear linear{12, 12};
  Forward run;
};
TORCH_MODULE(Writer);

template <class Norm>
Writer with(Norm norm, const std::vector<std::int64_t>& shape) {
  Writer writer([norm, shape](WriterImpl& self, const at::Tensor& x) mutable {
    return norm->forward(self.linear->forward(x).view(shape)).tanh().view({8, 12});
  });
  writer->register_module("norm", norm);
  return writer;
}

Writer with_buffer(const WriterImpl::Forward& run) {
  Writer writer(run);
  writer->register_buffer("state", at::linspace(0, 1, 12));
  return writer;
}

// What follows depends on the state before the write as well as on that after it.
at::Tensor moves(WriterImpl& writer, const at::Tensor& x) {
  auto state = writer.state();
  const auto before = (writer.linear->forward(x) * state.clone()).tanh();
  const at::NoGradGuard no_grad;
  state.mul_(0.5).add_(x.mean(0));
  const at::AutoGradMode with_gradients(true);
  return before.sigmoid() * state;
}

at::Tensor writes_overlapping_slices(WriterImpl& writer, const at::Tensor& x) {
  auto state = writer.state();
  state.narrow(0, 0, 8).add_(1);
  state.narrow(0, 4, 8).mul_(0.9);
  state[5].zero_();
  return (writer.linear->forward(x) * state).tanh();
}

at::Tensor writes_out(WriterImpl& writer, const at::Tensor& x) {
  auto state = writer.state();
  at::add_out(state, state, x.detach().mean(0));
  return (writer.linear->forward(x) + state).sin();
}

at::Tensor iterates(WriterImpl& writer, const at::Tensor& x) {
  auto u = writer.state();
  const auto& weight = writer.linear->weight;
  {
    const at::NoGradGuard no_grad;
    u.copy_(at::matmul(weight, at::matmul(weight.t(), u + 0.1)));
    u.div_(u.norm());
  }
  const auto norm = at::dot(u, at::matmul(weight, u)).abs().sqrt();
  return (writer.linear->forward(x) / (norm + 1)).tanh();
}

at::Tensor scales_its_weight(WriterImpl& writer, const at::Tensor& x) {
  writer.linear->weight.detach().mul_(0.9);
  return writer.linear->forward(x).tanh();
}

using Make = std::function<Writer()>;

const std::map<std::string, Make>& writers() {
  static const std::map<std::string, Make> table = {
      {"BatchNorm1d",
       [] {
         return with(nn::BatchNorm1d(12), {8, 12});
       }},
      {"BatchNorm1d over all batches",
       [] {
         return with(nn::BatchNorm1d(nn::BatchNormOptions(12).momentum(std::nullopt)), {8, 12});
       }},
      {"BatchNorm2d",
       [] {
         return with(nn::BatchNorm2d(3), {8, 3, 2, 2});
       }},
      {"BatchNorm3d",
       [] {
         return with(nn::BatchNorm3d(3), {8, 3, 1, 2, 2});
       }},
      {"InstanceNorm1d",
       [] {
         return with(nn::InstanceNorm1d(nn::InstanceNormOptions(3).track_running_stats(true)), {8, 3, 4});
       }},
      {"InstanceNorm2d",
       [] {
         return with(nn::InstanceNorm2d(nn::InstanceNormOptions(3).track_running_stats(true)), {8, 3, 2, 2});
       }},
      {"InstanceNorm3d",
       [] {
         return with(nn::InstanceNorm3d(nn::InstanceNormOptions(3).track_running_stats(true)),
                     {8, 3, 1, 2, 2});
       }},
      {"moving average", [] { return with_buffer(moves); }},
      {"overlapping slices", [] { return with_buffer(writes_overlapping_slices); }},
      {"out", [] { return with_buffer(writes_out); }},
      {"power iteration", [] { return with_buffer(iterates); }},
      {"parameter", [] { return Writer(scales_its_weight); }}};
  return table;
}

enum class Form { kPlain, kFunction, kNested, kPolicy };

at::Tensor forward_as(Form form, nn::Module& part, const at::Tensor& x) {
  const auto run = [&part](const at::Tensor& input) { return part.as<Writer>()->forward(input); };
  if (form == Form::kFunction) return checkpoint(run, x);
  if (form == Form::kNested)
    return checkpoint([run](const at::Tensor& input) { return checkpoint(run, input.mul(1)); }, x);
  return run(x);
}

nn::Sequential trained(Form form, const Make& make, const Communicator* comm = nullptr) {
  nn::Sequential model(make(), make());
  for (auto& parameter : model->parameters())
    parameter.detach().copy_(at::linspace(-0.5, 0.6, parameter.numel()).view(parameter.sizes()));
  std::optional<SyncBatchNorm> synced;
  if (comm) synced.emplace(*model, *comm);
  if (form == Form::kPolicy) apply_activation_checkpointing(*model, types<Writer>());
  for (int step = 0; step < 3; ++step) {
    auto x = (at::arange(96).view({8, 12}) * (0.7 + step)).sin();
    if (comm) x = x + comm->rank();
    for (const auto& part : model->children()) x = forward_as(form, *part, x);
    (x + 0.1).square().mean().backward();
    step_and_clear(*model);
  }
  return model;
}

void expect_same_state(const nn::Module& got, const nn::Module& expected, const std::string& what) {
  const auto buffers = expected.named_buffers(), parameters = expected.named_parameters();
  for (const auto& item : got.named_buffers())
    EXPECT_TRUE(item->equal(buffers[item.key()])) << what << ' ' << item.key();
  for (const auto& item : got.named_parameters())
    EXPECT_TRUE(item->equal(parameters[item.key()])) << what << ' ' << item.key();
}

TEST(CheckpointedBuffers, AreWrittenOnceInEveryForm) {
  for (const auto& [name, make] : writers()) {
    const auto plain = trained(Form::kPlain, make);
    expect_same_state(*trained(Form::kFunction, make), *plain, name + ", checkpoint()");
    expect_same_state(*trained(Form::kNested, make), *plain, name + ", checkpoint() in checkpoint()");
    expect_same_state(*trained(Form::kPolicy, make), *plain, name + ", by policy");
  }
}

// The model before leaves a pass open, which goes on with the making of this one: its statistics are written
// before ranks share them.
TEST(CheckpointedBuffers, AreWrittenOnceWhereRanksShareStatistics) {
  testing::run_ranks(2, [](const Communicator& comm) {
    for (const auto* name : {"BatchNorm1d", "BatchNorm2d", "BatchNorm1d over all batches"}) {
      const auto& make = writers().at(name);
      const auto plain = trained(Form::kPlain, make, &comm);
      for (const auto form : {Form::kFunction, Form::kNested, Form::kPolicy})
        expect_same_state(*trained(form, make, &comm), *plain, name);
    }
  });
}

// The second run leaves no trace that autograd would take for a write since.
TEST(CheckpointedBuffers, MayBeSavedByOperatorsThatFollow) {
  const auto state = at::ones({3}), x = at::ones({3}).requires_grad_();
  const auto y = checkpoint(
      [&](const at::Tensor& input) {
        state.add_(1);
        return (input * state).exp();
      },
      x);
  const auto loss = (y * state).sum();
  loss.backward({}, /*retain_graph=*/true);
  loss.backward();
  EXPECT_TRUE(state.equal(at::full({3}, 2.F)));
  EXPECT_TRUE(x.grad().allclose(at::full({3}, 2 * 4 * std::exp(2.F))));
}

}  // namespace
}  // namespace lockstep
