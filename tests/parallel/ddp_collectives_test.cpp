// Which collectives a DdpEngine issues, and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/testing/run_ranks.h>
#include <lockstep/testing/wrapped_backends.h>

#include "ddp_support.h"

namespace lockstep {
namespace {

using testing::CountedCall;
using testing::CountingBackend;
using ::testing::ElementsAre;
using testing::run_ranks;

// Five layers of 512 KiB each, without bias.
torch::nn::Sequential make_wide_model() {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(3);
  torch::nn::Sequential model;
  for (int layer = 0; layer < 5; ++layer) {
    model->push_back(torch::nn::Linear(
        torch::nn::LinearOptions(layer % 2 == 0 ? 512 : 256, layer % 2 == 0 ? 256 : 512).bias(false)));
  }
  return model;
}

constexpr std::uint64_t kLayerBytes = 512 << 10;

std::vector<std::uint64_t> reduced_bytes(const CountingBackend& counting) {
  std::vector<std::uint64_t> bytes;
  for (const auto& call : counting.calls()) {
    if (call.name == "all_reduce") bytes.push_back(call.bytes);
  }
  return bytes;
}

void backward(torch::nn::Sequential& model, DdpEngine& engine) {
  engine.backward(model->forward(at::ones({2, 512})).pow(2).mean());
}

TEST(DdpCollectives, FirstBucketIsIssuedBeforeBackwardEnds) {
  run_ranks(2, [](const Communicator& comm) {
    CountingBackend counting(comm);
    auto model = make_wide_model();
    DdpEngine engine(*model, counting.communicator(), {.bucket_cap_mb = 0.5});
    backward(model, engine);  // one bucket: the order of gradients is learnt
    // The first layer's gradient is the last one to be computed.
    model->children()[0]->parameters()[0].register_hook([&](const at::Tensor& gradient) {
      counting.mark("last gradient");
      return gradient;
    });
    counting.clear();
    backward(model, engine);
    std::vector<std::string> names;
    for (const auto& call : counting.calls()) names.push_back(call.name);
    EXPECT_THAT(names, ElementsAre("broadcast", "all_reduce", "all_reduce", "all_reduce", "all_reduce",
                                   "last gradient", "all_reduce"));
  });
}

TEST(DdpCollectives, BucketsKeepTheCap) {
  run_ranks(2, [](const Communicator& comm) {
    CountingBackend counting(comm);
    auto model = make_wide_model();
    const auto buckets = [&](const Ddp& options) {
      DdpEngine engine(*model, counting.communicator(), options);
      backward(model, engine);
      counting.clear();
      backward(model, engine);
      return reduced_bytes(counting);
    };
    // The first bucket is closed at 1 MiB, the others at the cap; a cap of one's own holds for the first,
    // too.
    EXPECT_THAT(buckets({}), ElementsAre(2 * kLayerBytes, 3 * kLayerBytes));
    EXPECT_THAT(buckets({.bucket_cap_mb = 1}), ElementsAre(2 * kLayerBytes, 2 * kLayerBytes, kLayerBytes));
    EXPECT_THAT(buckets({.bucket_cap_mb = 100}), ElementsAre(5 * kLayerBytes));
  });
}

TEST(DdpCollectives, BucketsAreRebuiltInTheOrderOfGradients) {
  run_ranks(2, [](const Communicator& comm) {
    CountingBackend counting(comm);
    torch::nn::Linear first(torch::nn::LinearOptions(4, 8).bias(false));
    torch::nn::Linear second(torch::nn::LinearOptions(16, 4).bias(false));  // used before the first
    torch::nn::Sequential model(first, second);
    DdpEngine engine(*model, counting.communicator(), {.bucket_cap_mb = 0.0001});
    const auto step = [&] {
      counting.clear();
      engine.backward(first->forward(second->forward(at::ones({1, 16}))).sum());
      return reduced_bytes(counting);
    };
    EXPECT_THAT(step(), ElementsAre((32 + 64) * 4));
    EXPECT_THAT(step(), ElementsAre(32 * 4, 64 * 4));
    const auto data = engine.logging_data();
    EXPECT_THAT(data.rebuilt_bucket_sizes, ElementsAre(32 * 4, 64 * 4));
  });
}

TEST(DdpCollectives, NothingIsSentUnderNoSync) {
  run_ranks(2, [](const Communicator& comm) {
    CountingBackend counting(comm);
    auto model = make_wide_model();
    DdpEngine engine(*model, counting.communicator());
    counting.clear();
    const auto sent = comm.bytes_sent();
    {
      const auto local = engine.no_sync();
      backward(model, engine);
      {
        const auto inner = engine.no_sync();
        backward(model, engine);
      }
      backward(model, engine);
    }
    EXPECT_EQ(counting.count(), 0u);
    EXPECT_EQ(comm.bytes_sent(), sent);
    backward(model, engine);
    EXPECT_EQ(counting.count("all_reduce"), 1u);
    EXPECT_EQ(counting.bytes("all_reduce"), 5 * kLayerBytes);
  });
}

TEST(DdpCollectives, AWindowIsReducedOnce) {
  run_ranks(2, [](const Communicator& comm) {
    for (const bool is_static : {false, true}) {
      CountingBackend counting(comm);
      auto model = make_wide_model();
      DdpEngine engine(*model, counting.communicator(), {.static_graph = is_static});
      for (int window = 0; window < 3; ++window) {
        counting.clear();
        for (int pass = 0; pass < 3; ++pass) {
          const auto loss = model->forward(at::ones({2, 512})).mean();
          pass == 2 ? engine.backward(loss) : loss.backward();
        }
        // Whether each layer was used, and whether any was left out.
        const auto used_map = is_static && window == 0 ? (5 + 1) * sizeof(int) : 0;
        EXPECT_EQ(counting.bytes("all_reduce"), 5 * kLayerBytes + used_map);
      }
    }
  });
}

TEST(DdpCollectives, HalfTheBytesWithCompression) {
  run_ranks(2, [](const Communicator& comm) {
    CountingBackend counting(comm);
    auto model = make_wide_model();
    DdpEngine engine(*model, counting.communicator(), {.ddp_comm_hook = DdpCommHook::kBf16Compress});
    counting.clear();
    backward(model, engine);
    EXPECT_EQ(counting.bytes("all_reduce"), 5 * kLayerBytes / 2);
    EXPECT_EQ(engine.logging_data().comm_hook, "bf16_compress");
  });
}

TEST(DdpCollectives, SkipsBucketsThatNobodyUses) {
  run_ranks(2, [](const Communicator& comm) {
    for (const bool skips : {false, true}) {
      CountingBackend counting(comm);
      torch::nn::Linear used(torch::nn::LinearOptions(16, 16).bias(false)), rest(256, 256);
      torch::nn::Sequential model(used, rest);
      DdpEngine engine(
          *model, counting.communicator(),
          {.bucket_cap_mb = 0.0001, .find_unused_parameters = true, .skip_all_reduce_unused_params = skips});
      counting.clear();
      engine.backward(used->forward(at::ones({1, 16})).sum());
      EXPECT_EQ(counting.bytes("all_reduce") > 256 * 256 * 4, !skips);
      EXPECT_FALSE(rest->weight.grad().defined());
    }
  });
}

TEST(DdpCollectives, LoggingDataDescribesBucketsAndTimes) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_wide_model();
    DdpEngine engine(*model, comm, {.bucket_cap_mb = 1});
    const auto planned = engine.logging_data();
    EXPECT_EQ(planned.rank, comm.rank());
    EXPECT_EQ(planned.world_size, 2);
    EXPECT_EQ(planned.num_parameter_tensors, 5);
    EXPECT_EQ(planned.total_parameter_size_bytes, static_cast<std::int64_t>(5 * kLayerBytes));
    EXPECT_EQ(planned.bucket_cap_bytes, 1 << 20);
    EXPECT_THAT(planned.bucket_sizes, ElementsAre(5 * kLayerBytes));
    EXPECT_FALSE(planned.has_rebuilt_buckets);
    EXPECT_EQ(planned.comm_hook, "allreduce");
    for (int step = 0; step < 3; ++step) {
      backward(model, engine);
      engine.after_step();
    }
    const auto data = engine.logging_data();
    EXPECT_EQ(data.iteration, 3);
    EXPECT_TRUE(data.has_rebuilt_buckets);
    EXPECT_THAT(data.rebuilt_bucket_sizes, ElementsAre(2 * kLayerBytes, 2 * kLayerBytes, kLayerBytes));
    EXPECT_THAT(data.prev_iteration_grad_ready_order,
                ElementsAre("4.weight", "3.weight", "2.weight", "1.weight", "0.weight"));
    EXPECT_GT(data.forward_compute_time.count(), 0);
    EXPECT_GT(data.avg_backward_compute_time.count(), 0);
    EXPECT_GT(data.avg_backward_comm_time.count(), 0);
    EXPECT_GE(data.avg_backward_comm_time, data.avg_backward_compute_comm_overlap_time);
  });
}

}  // namespace
}  // namespace lockstep
