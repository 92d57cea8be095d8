#include "device/compat.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#define LOCKSTEP_HAS_GRAPHS 1
#endif

namespace lockstep::detail {
namespace {

// An explicit instantiation may name private members: this is how one gets at them.
template <class Tag, typename Tag::type kMember>
struct PrivateMember {
  friend typename Tag::type member_of(Tag) { return kMember; }
};

struct ThrowsOnAccess {
  using type = bool c10::StorageImpl::*;
  friend type member_of(ThrowsOnAccess);
};
struct RefreshChecks {
  using type = void (c10::StorageImpl::*)();
  friend type member_of(RefreshChecks);
};
template struct PrivateMember<ThrowsOnAccess, &c10::StorageImpl::throw_on_immutable_data_ptr_>;
template struct PrivateMember<RefreshChecks, &c10::StorageImpl::refresh_has_data_ptr_check>;

template <class Storage>
concept AllowsAccessAgain = requires(Storage& storage) {
  storage.clear_data_ptr_access_error_msg_();
};

// A template, so that the call of what is not there is never compiled.
template <class Storage>
void allow(Storage& storage) {
  if constexpr (AllowsAccessAgain<Storage>) {
    storage.clear_data_ptr_access_error_msg_();
  } else {
    storage.*member_of(ThrowsOnAccess{}) = false;
    (storage.*member_of(RefreshChecks{}))();
  }
}

}  // namespace

void allow_access(c10::StorageImpl& storage) { allow(storage); }

#ifdef LOCKSTEP_HAS_GRAPHS

namespace {

class TorchGraph final : public DeviceGraph {
 public:
  TorchGraph(c10::DeviceType type, std::unique_ptr<at::GraphImplInterface> graph)
      : type_(type), graph_(std::move(graph)) {}

  // Other threads, such as those that carry out collectives, may do meanwhile what a stream that is recorded
  // may not.
  void begin() override { graph_->capture_begin({0, 0}, at::GraphCaptureMode::ThreadLocal); }
  void end() override { graph_->capture_end(); }
  void abandon() override {
    try {
      graph_->capture_end();
    } catch (const c10::Error&) {
      // Says once more why.
    }
  }
  bool can_be_abandoned() const override { return type_ != c10::DeviceType::CUDA; }
  void replay() override { graph_->replay(); }

 private:
  c10::DeviceType type_;
  std::unique_ptr<at::GraphImplInterface> graph_;
};

}  // namespace

std::unique_ptr<DeviceGraph> make_graph(c10::Device device) {
  if (!at::has_graph_impl(device.type())) return nullptr;
  return std::make_unique<TorchGraph>(device.type(), at::create_graph_impl(device.type()));
}

#else

std::unique_ptr<DeviceGraph> make_graph(c10::Device /*device*/) { return nullptr; }

#endif

}  // namespace lockstep::detail
