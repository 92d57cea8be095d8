// "sim" among the transports of lockstep: devices that are connected as NCCL connects them. Where ranks
// differ in what they call, or one of them is gone, a collective never ends until it is aborted, and its
// results are then anything; and tensors are summed in another order than ours.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "base/system.h"
#include "comm/transport/device_transport.h"
#include "comm/transport/transport.h"
#include "sim/runtime.h"
#include "sim/sim_accelerator.h"

namespace lockstep::sim {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Bytes = std::vector<std::uint8_t>;

class DoneWork final : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override { return true; }
  bool isCompleted() override { return true; }
};

at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

// Ranks meet in a store, in the threads of their streams. Each gives all that it has to all others.
class StoreBackend final : public c10d::Backend {
 public:
  StoreBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : Backend(rank, size), store_(std::move(store)) {}

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    reduce_together(tensors, options.reduceOp);
    return done();
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    reduce_together(tensors, options.reduceOp);
    return done();
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const auto all = meet("broadcast", tensors);
    if (!all.empty()) tensors[0].copy_(like(tensors[0], all[static_cast<std::size_t>(options.rootRank)]));
    return done();
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override {
    const auto all = meet("all_gather", {input});
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      output.narrow(0, static_cast<std::int64_t>(rank) * input.numel(), input.numel())
          .copy_(like(input, all[rank]));
    return done();
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    auto whole = input.clone();
    Tensors tensors{whole};
    reduce_together(tensors, options.reduceOp);
    output.copy_(whole.narrow(0, rank_ * output.numel(), output.numel()));
    return done();
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions&) override {
    auto to = output_splits.empty() ? output.chunk(size_) : output.split_with_sizes(output_splits);
    auto from = input_splits.empty() ? input.chunk(size_) : input.split_with_sizes(input_splits);
    return alltoall(to, from, {});
  }
  // What is for each rank stands behind its size.
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) override {
    Bytes own;
    for (const auto& input : inputs) {
      const auto size = static_cast<std::int64_t>(input.nbytes());
      const auto* const begin = reinterpret_cast<const std::uint8_t*>(&size);
      own.insert(own.end(), begin, begin + sizeof size);
      const auto* const data = static_cast<const std::uint8_t*>(input.const_data_ptr());
      own.insert(own.end(), data, data + size);
    }
    const auto all = meet("all_to_all", std::move(own), /*sizes_are_equal=*/false);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const auto part = part_for_this_rank(all[rank]);
      if (part.size() != outputs[rank].nbytes()) return hang();
      std::ranges::copy(part, static_cast<std::uint8_t*>(outputs[rank].mutable_data_ptr()));
    }
    return done();
  }

  void abort() override { is_aborted_ = true; }

 private:
  static WorkPtr done() { return c10::make_intrusive<DoneWork>(); }

  WorkPtr hang() const {
    while (!is_aborted_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return done();
  }

  static at::Tensor like(const at::Tensor& tensor, const Bytes& bytes) {
    auto made = at::empty_like(tensor);
    std::memcpy(made.mutable_data_ptr(), bytes.data(), made.nbytes());
    return made;
  }

  std::span<const std::uint8_t> part_for_this_rank(const Bytes& bytes) const {
    std::size_t at = 0;
    for (int rank = 0;; ++rank) {
      std::int64_t size = 0;
      std::memcpy(&size, &bytes.at(at), sizeof size);
      at += sizeof size;
      if (rank == rank_) return std::span(bytes).subspan(at, static_cast<std::size_t>(size));
      at += static_cast<std::size_t>(size);
    }
  }

  // From the last rank on. Averages are sums of what is divided, as NCCL's, so that halves do not overflow.
  void reduce_together(Tensors& tensors, const c10d::ReduceOp& op) {
    Tensors flat;
    for (const auto& tensor : tensors) flat.push_back(tensor.reshape({-1}));
    const auto packed = at::cat(flat);
    const auto all = meet("reduction", {packed});
    if (all.empty()) return;
    const auto part_of = [&](const Bytes& bytes) {
      auto part = like(packed, bytes);
      return op == c10d::ReduceOp::AVG ? part.div_(size_) : part;
    };
    auto result = part_of(all.back());
    for (auto rank = all.rbegin() + 1; rank != all.rend(); ++rank) {
      const auto next = part_of(*rank);
      if (op == c10d::ReduceOp::MIN)
        result = at::minimum(result, next);
      else if (op == c10d::ReduceOp::MAX)
        result = at::maximum(result, next);
      else
        op == c10d::ReduceOp::PRODUCT ? result.mul_(next) : result.add_(next);
    }
    std::int64_t begin = 0;
    for (auto& tensor : tensors) {
      tensor.copy_(result.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
      begin += tensor.numel();
    }
  }

  std::vector<Bytes> meet(const std::string& name, const Tensors& tensors) {
    const auto bytes = as_bytes(tensors[0].contiguous());
    const auto* const data = bytes.const_data_ptr<std::uint8_t>();
    return meet(name, Bytes(data, data + bytes.numel()), /*sizes_are_equal=*/true);
  }

  // What all ranks gave; nothing after abort(). Where they differ in what they call, all wait for ever.
  std::vector<Bytes> meet(const std::string& name, Bytes own, bool sizes_are_equal) {
    const auto header = name + " " + (sizes_are_equal ? std::to_string(own.size()) : "");
    const auto number = std::to_string(number_++);
    if (is_aborted_) return {};
    store_->set(key(number, "header", rank_), Bytes(header.begin(), header.end()));
    store_->set(key(number, "data", rank_), own);
    std::vector<Bytes> all;
    for (int rank = 0; rank < size_; ++rank) {
      if (!await(key(number, "data", rank))) return {};
      const auto theirs = store_->get(key(number, "header", rank));
      if (std::string(theirs.begin(), theirs.end()) != header) {
        hang();
        return {};
      }
      all.push_back(rank == rank_ ? own : store_->get(key(number, "data", rank)));
    }
    return all;
  }

  static std::string key(const std::string& number, const std::string& what, int rank) {
    return number + "/" + what + "/" + std::to_string(rank);
  }

  // A server that is gone is a rank that is gone.
  bool await(const std::string& key) const {
    while (!is_aborted_) {
      try {
        if (store_->check({key})) return true;
      } catch (const std::exception&) {
        hang();
        return false;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return false;
  }

  c10::intrusive_ptr<c10d::Store> store_;
  std::int64_t number_ = 0;  // of the next collective
  std::atomic<bool> is_aborted_{false};
};

std::string absence_of_sim() {
  return is_installed() ? "" : "there are no simulated devices in this process";
}
std::string identity_of_sim(c10::Device device) { return device.str(); }
bool may_share_sim() { return false; }

c10::intrusive_ptr<c10d::Backend> connect_sim(const detail::DeviceConnectOptions& options) {
  auto host = c10::make_intrusive<StoreBackend>(options.store, options.rank, options.size);
  return make_backend(std::move(host), options.device.index());
}

constexpr detail::DeviceTransport kSimTransport{.type = kDeviceType,
                                                .absence = &absence_of_sim,
                                                .identity_of = &identity_of_sim,
                                                .shares_devices = &may_share_sim,
                                                .connect = &connect_sim};

}  // namespace

void register_sim_transport() {
  static std::once_flag once;
  std::call_once(once, [] {
    auto row = *detail::find_transport("sockets");
    row.name = "sim";
    row.on_devices = &kSimTransport;
    detail::register_transport(row);
  });
}

}  // namespace lockstep::sim
