// A DistributedDataParallel of one's own: buckets that are averaged while backward runs, and buffers that follow rank 0.
#pragma once

#include <lockstep/lockstep.h>

#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bucket.h"

namespace tutorial {

class OwnDdp {
 public:
  /// Makes all ranks' parameters and buffers those of rank 0. Collective.
  OwnDdp(const torch::nn::Module& module, ls::Communicator group, std::size_t bucket_cap_bytes = 25 << 20)
      : group_(std::move(group)), buffers_(module.buffers()) {
    const torch::NoGradGuard no_grad;
    for (const auto& parameter : module.parameters()) group_.broadcast(parameter.detach());
    broadcast_buffers();
    buckets_ = make_buckets(module.parameters(), bucket_cap_bytes);
    for (auto& bucket : buckets_) follow(bucket);
  }
  OwnDdp(const OwnDdp&) = delete;  // the hooks hold its address
  OwnDdp& operator=(const OwnDdp&) = delete;

  /// Gradients are averaged while backward runs; with `sync` false they only add up. Collective with `sync`.
  void backward(const torch::Tensor& loss, bool sync = true) {
    is_syncing_ = sync;
    next_ = 0;
    loss.backward();
    if (!sync) return;
    if (next_ < buckets_.size()) throw std::runtime_error("OwnDdp: a parameter got no gradient");
    for (auto& bucket : buckets_) bucket.finish();
  }

  /// After the optimizer's step: the running statistics of BatchNorm are rank 0's. Collective.
  void after_step() const { broadcast_buffers(); }

 private:
  void follow(Bucket& bucket) {
    for (std::size_t place = 0; place < bucket.parameters().size(); ++place) {
      hooks_.emplace_back(ls::register_post_accumulate_grad_hook(
          bucket.parameters()[place], [this, &bucket, place](const torch::Tensor&) {
            if (!is_syncing_) return;
            bucket.take(place);
            start_full_buckets();
          }));
    }
  }

  // All ranks must send the buckets in one order, whichever is full first.
  void start_full_buckets() {
    while (next_ < buckets_.size() && buckets_[next_].is_full()) buckets_[next_++].start(group_);
  }

  void broadcast_buffers() const {
    for (const auto& buffer : buffers_) group_.broadcast(buffer);
  }

  ls::Communicator group_;
  std::vector<torch::Tensor> buffers_;
  std::vector<Bucket> buckets_;
  std::vector<ls::ScopedHandle> hooks_;  // removed when this goes out of scope
  std::size_t next_ = 0;                 // bucket to be sent
  bool is_syncing_ = false;
};

}  // namespace tutorial
