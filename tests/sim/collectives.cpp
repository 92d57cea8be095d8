#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "sim/kernel_views.h"
#include "sim/runtime.h"

namespace lockstep::sim {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

c10::Stream current_stream_of(c10::Device device) {
  return c10::impl::VirtualGuardImpl(kDeviceType).getStream(device);
}

// A collective that was issued. Holds its inputs until the current stream waits for it: so they need no
// record_stream().
class SimWork final : public c10d::Work {
 public:
  SimWork(int rank, c10d::OpType type, Tensors outputs, Tensors inputs, c10::Stream on)
      : Work(rank, type),
        device_(on.device()),
        outputs_(std::move(outputs)),
        inputs_(std::move(inputs)),
        done_(kDeviceType) {
    const c10::StreamGuard guard(on);
    done_.record(on);
    future_ = c10::make_intrusive<at::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                      std::vector<c10::Device>{device_});
    future_->markCompleted(at::IValue(outputs_));
  }
  bool wait(std::chrono::milliseconds) override {
    done_.block(current_stream_of(device_));
    inputs_.clear();
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  bool isCompleted() override { return done_.query(); }
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::Device device_;
  Tensors outputs_, inputs_;
  c10::Event done_;
  c10::intrusive_ptr<at::ivalue::Future> future_;
};

// What runs on a stream holds the host's backend: it may be left when the last reference to this one goes.
class SimBackend final : public c10d::Backend {
 public:
  SimBackend(c10::intrusive_ptr<c10d::Backend> host, c10::DeviceIndex device)
      : Backend(host->getRank(), host->getSize()), host_(std::move(host)), device_(kDeviceType, device) {}

  // Peers need all that was issued. What a kernel threw is thrown by whoever calls next.
  ~SimBackend() override { drain_stream(device_.index() * kStreamsPerDevice + kCollectiveStream); }

  const std::string getBackendName() const override { return "sim"; }

  void abort() override { host_->abort(); }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return run(
        "all_reduce", c10d::OpType::ALLREDUCE, tensors, {},
        [=, host = host_, views = views_of(tensors)]() mutable { return host->allreduce(views, options); });
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return run(
        "broadcast", c10d::OpType::BROADCAST, tensors, {},
        [=, host = host_, views = views_of(tensors)]() mutable { return host->broadcast(views, options); });
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    return run("all_gather", c10d::OpType::ALLGATHER, outputs[0], inputs,
               [=, host = host_, to = std::vector<Tensors>{views_of(outputs[0])},
                from = views_of(inputs)]() mutable { return host->allgather(to, from, options); });
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    return run("all_gather", c10d::OpType::_ALLGATHER_BASE, {output}, {input},
               [=, host = host_, to = kernel_view(output), from = kernel_view(input)]() mutable {
                 return host->_allgather_base(to, from, options);
               });
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return run("reduce_scatter", c10d::OpType::_REDUCE_SCATTER_BASE, {output}, {input},
               [=, host = host_, to = kernel_view(output), from = kernel_view(input)]() mutable {
                 return host->_reduce_scatter_base(to, from, options);
               });
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return run("all_reduce", c10d::OpType::ALLREDUCE_COALESCED, tensors, {},
               [=, host = host_, views = views_of(tensors)]() mutable {
                 return host->allreduce_coalesced(views, options);
               });
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override {
    return run("all_to_all", c10d::OpType::ALLTOALL_BASE, {output}, {input},
               [=, host = host_, to = kernel_view(output), from = kernel_view(input)]() mutable {
                 return host->alltoall_base(to, from, output_splits, input_splits, options);
               });
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return run("all_to_all", c10d::OpType::ALLTOALL, outputs, inputs,
               [=, host = host_, to = views_of(outputs), from = views_of(inputs)]() mutable {
                 return host->alltoall(to, from, options);
               });
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    note_host_sync("barrier");
    wait_for_device(device_.index());
    return host_->barrier(options);
  }

 private:
  static Tensors views_of(const Tensors& tensors) {
    Tensors views;
    for (const auto& tensor : tensors) views.push_back(kernel_view(tensor));
    return views;
  }

  // The stream of collectives waits for the current one, as collectives read what was computed there.
  WorkPtr run(const char* name, c10d::OpType type, const Tensors& outputs, const Tensors& inputs,
              std::function<WorkPtr()> collective) {
    const c10::DeviceGuard guard(device_);
    const auto on = sim::stream(device_.index(), kCollectiveStream);
    c10::Event ready(kDeviceType);
    ready.record(current_stream_of(device_));
    ready.block(on);
    std::vector<Operand> operands;
    for (const auto& input : inputs) operands.push_back({input});
    for (const auto& output : outputs) operands.push_back({output, /*is_written=*/true});
    {
      const c10::StreamGuard on_collectives(on);
      launch(name, device_.index(), operands,
             [collective = std::move(collective)]() mutable { collective()->wait(); });
    }
    return c10::make_intrusive<SimWork>(rank_, type, outputs, inputs, on);
  }

  c10::intrusive_ptr<c10d::Backend> host_;
  c10::Device device_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_backend(c10::intrusive_ptr<c10d::Backend> host,
                                               c10::DeviceIndex device) {
  return c10::make_intrusive<SimBackend>(std::move(host), device);
}

}  // namespace lockstep::sim
