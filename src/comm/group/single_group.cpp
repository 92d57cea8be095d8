// The group of a rank alone: a world of one, or a sub-group of one rank.
#include "comm/group/group.h"

namespace lockstep::detail {
namespace {

class SingleGroup final : public Group {
 public:
  explicit SingleGroup(GroupIdentity identity) : Group(std::move(identity), kCollectiveDevices) {}

  std::string backend() const override { return "single"; }
  std::chrono::milliseconds timeout() const override { return std::chrono::milliseconds::max(); }
  std::uint64_t bytes_sent() const override { return 0; }
  std::string activity() const override { return ""; }
  void close() override {}

  // Gathering and scattering among one are copies; the rest leaves its tensor as it is.
  void run(const Collective& collective) override {
    const auto& input = collective.inputs.empty() ? collective.input : collective.inputs.front();
    const auto& output = collective.outputs.empty() ? collective.output : collective.outputs.front();
    if (!input.defined()) return;
    const at::NoGradGuard no_grad;
    output.copy_(input.reshape(output.sizes()));
  }

  std::shared_ptr<Pending> start(const Collective& collective) override {
    run(collective);
    return nullptr;
  }

  std::shared_ptr<Group> make_subgroup(std::span<const int> members, int number) override {
    return single_group(identity_of_subgroup(identity(), members, number));
  }
};

}  // namespace

std::shared_ptr<Group> single_group(GroupIdentity identity) {
  return std::make_shared<SingleGroup>(std::move(identity));
}

}  // namespace lockstep::detail
