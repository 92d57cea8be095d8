// Which modules SyncBatchNorm takes, when it communicates, what it refuses and what it leaves behind.
#include <gmock/gmock.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/ddp/ddp_engine.h>
#include <lockstep/parallel/sync_batch_norm.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/testing/wrapped_backends.h>

#include "sync_batch_norm_support.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::CountingBackend;
using ::testing::HasSubstr;
using testing::run_ranks;
using ::testing::ThrowsMessage;

const NormCase kBatches1d{"Batches1d", {5}};
const NormCase kBare{"NeitherAffineNorTracked", {5}, false, false};

at::Tensor share(const Communicator& comm, std::int64_t rows = 4) {
  return norm_batch(rows, {5}, comm.rank());
}

TEST(SyncBatchNorm, CommunicatesOncePerLayerAndPass) {
  run_ranks(2, [](const Communicator& comm) {
    CountingBackend counting(comm);
    auto model = norm_model(kBatches1d);
    const SyncBatchNorm sync(*model, counting.communicator());
    EXPECT_EQ(counting.count(), 0u);
    const auto output = model->forward(share(comm));
    EXPECT_EQ(counting.count(), 2u);
    EXPECT_EQ(counting.bytes("all_gather"), 2u * 2 * (2 * 5 + 1) * 8);
    output.sum().backward();
    EXPECT_EQ(counting.count("all_reduce"), 1u) << "the batch needs no gradient";
    EXPECT_EQ(counting.bytes("all_reduce"), 2u * 5 * 8);
    train_pass(model, share(comm), share(comm));
    EXPECT_EQ(counting.count(), 3u + 4);
  });
}

TEST(SyncBatchNorm, StaysLocalInEvaluationAndAlone) {
  run_ranks(2, [](const Communicator& comm) {
    for (const auto& test : {kBatches1d, kBare}) {
      CountingBackend counting(comm);
      auto model = norm_model(test), reference = norm_model(test);
      const SyncBatchNorm sync(*model, counting.communicator());
      model->eval();
      reference->eval();
      EXPECT_TRUE(model->forward(share(comm)).equal(reference->forward(share(comm))));
      EXPECT_EQ(counting.count(), 0u);
    }
    auto alone = norm_model(kBatches1d);
    const auto keys = alone->named_buffers()["0.running_mean"].key_set();
    const SyncBatchNorm none(*alone, Communicator());
    EXPECT_EQ(none.size(), 0u);
    EXPECT_EQ(alone->named_buffers()["0.running_mean"].key_set(), keys);
  });
}

// The first layer is frozen: its running statistics are used, and the second one's alone are updated.
TEST(SyncBatchNorm, FollowsTheModeOfEachLayer) {
  run_ranks(2, [](const Communicator& comm) {
    CountingBackend counting(comm);
    auto model = norm_model(kBatches1d);
    const SyncBatchNorm sync(*model, counting.communicator());
    model[0]->eval();
    model->forward(share(comm));
    EXPECT_EQ(counting.count(), 1u);
    EXPECT_EQ(model->named_buffers()["0.num_batches_tracked"].item<int>(), 0);
    EXPECT_EQ(model->named_buffers()["2.num_batches_tracked"].item<int>(), 1);
  });
}

TEST(SyncBatchNorm, JoinsTheRanksOfItsGroupOnly) {
  run_ranks(3, [](const Communicator& comm) {
    const auto group = comm.split(comm.rank() == 1 ? 1 : 0).value();
    auto model = norm_model(kBatches1d), reference = norm_model(kBatches1d);
    const SyncBatchNorm sync(*model, group);
    const auto whole =
        group.size() == 2 ? at::cat({norm_batch(4, {5}, 0), norm_batch(4, {5}, 2)}) : norm_batch(4, {5}, 1);
    reference->forward(whole);
    model->forward(share(comm));
    expect_same_buffers(*model, *reference, 1e-12);
  });
}

struct Nest : torch::nn::Module {
  explicit Nest(const NormCase& test) : body(norm_model(test)) {
    register_module("body", body);
    register_module("again", body[0]);  // the same module under another name
    register_module("head", torch::nn::Linear(5, 2));
  }
  torch::nn::Sequential body;
};

TEST(SyncBatchNorm, LeavesModulesAsTheyWere) {
  run_ranks(2, [](const Communicator& comm) {
    for (const auto& test : {kBatches1d, kBare}) {
      Nest model(test);
      auto& norm = *model.body[0]->as<torch::nn::BatchNorm1d>();
      const auto names = model.named_buffers().keys();
      const auto* mean = norm.running_mean.unsafeGetTensorImpl();
      const auto is_tracked = norm.running_mean.defined();
      const auto keys = is_tracked ? norm.running_mean.key_set() : c10::DispatchKeySet();
      {
        const SyncBatchNorm sync(model, comm);
        EXPECT_EQ(sync.size(), 2u);
        model.body->forward(share(comm));
        EXPECT_EQ(model.named_buffers().keys(), names);
        EXPECT_EQ(model.named_parameters().size(), test.is_affine ? 8u : 2u);
        sync.check();
      }
      EXPECT_EQ(norm.running_mean.unsafeGetTensorImpl(), mean);
      if (is_tracked) {
        EXPECT_EQ(norm.running_mean.key_set(), keys);
      }
      EXPECT_TRUE(model.body->forward(share(comm)).equal(norm_model(test)->forward(share(comm))));
    }
  });
}

TEST(SyncBatchNorm, ClonesAreNotSynchronised) {
  run_ranks(2, [](const Communicator& comm) {
    for (const auto& test : {kBatches1d, kBare}) {
      CountingBackend counting(comm);
      auto model = norm_model(test);
      const SyncBatchNorm sync(*model, counting.communicator());
      const auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(model->clone());
      copy->forward(share(comm));
      EXPECT_EQ(counting.count(), 0u);
    }
  });
}

TEST(SyncBatchNorm, MayEndBeforeBackwardAndAfterItsModel) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = norm_model(kBatches1d);
    at::Tensor output;
    {
      const SyncBatchNorm sync(*model, comm);
      output = model->forward(share(comm));
    }
    output.sum().backward();
    auto moved = SyncBatchNorm(*model, comm);
    const SyncBatchNorm sync(std::move(moved));
    EXPECT_EQ(sync.size(), 2u);
    model = nullptr;
    sync.check();
  });
}

TEST(SyncBatchNorm, TakesABatchNormItself) {
  run_ranks(2, [](const Communicator& comm) {
    torch::nn::BatchNorm1d norm(5);
    EXPECT_EQ(SyncBatchNorm(*norm, comm).size(), 1u);
    torch::nn::BatchNorm1dImpl unowned(5);
    EXPECT_THAT([&] { SyncBatchNorm(unowned, comm); }, ThrowsMessage<ConfigError>(HasSubstr("shared_ptr")));
  });
}

TEST(SyncBatchNorm, RefusesWhatIsSynchronisedAlready) {
  run_ranks(2, [](const Communicator& comm) {
    for (const auto& test : {kBatches1d, kBare}) {
      Nest model(test);
      const auto& norm = *model.body[2]->as<torch::nn::BatchNorm1d>();
      {
        const SyncBatchNorm sync(model, comm);
        EXPECT_THAT([&] { SyncBatchNorm(model, comm); }, ThrowsMessage<ConfigError>(HasSubstr("body.0")));
        EXPECT_EQ(sync.size(), 2u);
        sync.check();
      }
      EXPECT_EQ(norm.running_mean.defined(), test.is_tracked);
      EXPECT_EQ(SyncBatchNorm(model, comm).size(), 2u);
    }
  });
}

// Otherwise each rank would go on with statistics of its own, and nobody would notice.
TEST(SyncBatchNorm, NoticesBeforeBackwardThatItLostALayer) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = norm_model(kBatches1d);
    const SyncBatchNorm sync(*model, comm);
    train_pass(model, share(comm), share(comm));
    model[2]->to(at::kFloat);
    EXPECT_THAT([&] { sync.check(); }, ThrowsMessage<ConfigError>(HasSubstr("layer 2 ")));
    const auto loss = torch::ones({1}, torch::requires_grad()).sum();
    EXPECT_THAT([&] { loss.backward(); }, ThrowsMessage<ConfigError>(HasSubstr("layer 2 ")));
    model[2]->to(at::kDouble);
    EXPECT_THROW(sync.check(), ConfigError);
  });
}

TEST(SyncBatchNorm, RefusesGradientsOfGradients) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = norm_model(kBatches1d);
    const SyncBatchNorm sync(*model, comm);
    const auto loss = model->forward(share(comm)).pow(2).sum();
    EXPECT_THAT([&] { loss.backward({}, {}, /*create_graph=*/true); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("layer 2"), HasSubstr("create_graph"))));
  });
}

TEST(SyncBatchNorm, RefusesOneValuePerChannelInAll) {
  run_ranks(2, [](const Communicator& comm) {
    torch::nn::BatchNorm1d norm(5);
    const SyncBatchNorm sync(*norm, comm);
    const auto rows = comm.rank() == 0 ? at::ones({1, 5}) : at::ones({0, 5});
    // LibTorch's module would refuse the single row before it comes here; its operator does not.
    const auto call = [&] {
      at::batch_norm(rows, norm->weight, norm->bias, norm->running_mean, norm->running_var, true, 0.1, 1e-5,
                     false);
    };
    EXPECT_THAT(call, ThrowsMessage<ConfigError>(HasSubstr("more than one value per channel")));
    EXPECT_TRUE(norm->running_mean.equal(at::zeros({5})));
  });
}

TEST(SyncBatchNorm, NamesRanksThatDoNotTakePart) {
  run_ranks(3, [](const Communicator& comm) {
    auto model = norm_model(kBatches1d);
    const SyncBatchNorm sync(*model, comm);
    const auto act = [&] {
      if (comm.rank() == 1) return comm.barrier();
      model->forward(share(comm));
    };
    EXPECT_THAT(act, ThrowsMessage<CollectiveMismatch>(AllOf(HasSubstr("all_gather"), HasSubstr("barrier"))));
  });
}

// Ranks that use different parameters send their buckets at different times of backward.
struct Branches : torch::nn::Module {
  Branches() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("left", left);
    register_module("right", right);
    to(at::kDouble);
    double shift = 0;
    const at::NoGradGuard no_grad;
    for (auto& parameter : parameters()) {
      parameter.copy_(at::linspace(-1, 1 + shift, parameter.numel()).view_as(parameter));
      shift += 1;
    }
  }
  at::Tensor loss(const at::Tensor& batch, bool goes_left) {
    const auto hidden = norm->forward(first->forward(batch));
    return (goes_left ? left : right)->forward(hidden).pow(2).sum();
  }
  torch::nn::Linear first{5, 5}, left{5, 2}, right{5, 2};
  torch::nn::BatchNorm1d norm{5};
};

TEST(SyncBatchNorm, MixesWithDdpWhereRanksUseDifferentParameters) {
  run_ranks(2, [](const Communicator& comm) {
    Branches model, reference;
    const auto batch = norm_batch(8, {5}, 0, at::kDouble);
    const SyncBatchNorm sync(model, comm.split(0).value());
    DdpEngine engine(model, comm, {.bucket_cap_mb = 1e-5, .find_unused_parameters = true});
    for (int step = 0; step < 3; ++step) {
      for (auto* each : {&model, &reference}) each->zero_grad();
      engine.backward(model.loss(rows_of(batch, {4, 4}, comm), comm.rank() == 0));
      const auto hidden = reference.norm->forward(reference.first->forward(batch));
      const auto left = reference.left->forward(hidden.narrow(0, 0, 4)).pow(2).sum();
      const auto right = reference.right->forward(hidden.narrow(0, 4, 4)).pow(2).sum();
      ((left + right) / 2).backward();
      const auto expected = reference.named_parameters();
      for (const auto& item : model.named_parameters()) {
        expect_near(item.value().grad(), expected[item.key()].grad(), 1e-11, item.key());
      }
    }
    expect_same_buffers(model, reference, 1e-12);
  });
}

}  // namespace
}  // namespace lockstep
