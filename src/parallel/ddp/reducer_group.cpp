#include "parallel/ddp/reducer_group.h"

namespace lockstep::detail {
namespace {

class WorkAdapter final : public c10d::Work {
 public:
  explicit WorkAdapter(lockstep::Work work) : work_(std::move(work)) {}
  bool isCompleted() override { return work_.is_completed(); }
  bool wait(std::chrono::milliseconds /*of the group*/) override {
    work_.wait();
    return true;
  }

 private:
  lockstep::Work work_;
};

class ReducerBackend final : public c10d::Backend {
 public:
  ReducerBackend(Communicator comm, ReduceUsedMap reduce_used_map)
      : Backend(comm.rank(), comm.size()),
        comm_(std::move(comm)),
        reduce_used_map_(std::move(reduce_used_map)) {}
  const std::string getBackendName() const override { return "lockstep"; }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return c10::make_intrusive<WorkAdapter>(
        comm_.broadcast_async(tensors.at(0), static_cast<int>(options.rootRank)));
  }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& /*a sum*/) override {
    return reduce_used_map_(tensors.at(0));
  }

 private:
  Communicator comm_;
  ReduceUsedMap reduce_used_map_;
};

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> make_reducer_group(const Communicator& comm, c10::DeviceType device,
                                                          ReduceUsedMap reduce_used_map) {
  using c10d::ProcessGroup;
  auto group = c10::make_intrusive<ProcessGroup>(comm.rank(), comm.size());
  group->setDefaultBackend(ProcessGroup::BackendType::CUSTOM);
  group->setBackend(device, ProcessGroup::BackendType::CUSTOM,
                    c10::make_intrusive<ReducerBackend>(comm, std::move(reduce_used_map)));
  group->setGroupName("lockstep_ddp");
  return group;
}

}  // namespace lockstep::detail
