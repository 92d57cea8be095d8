// What the transport leaves to Gloo.
#include "comm/transport/gloo/gloo_transport.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "comm/fake_stuck_work.h"
#include "comm/shared_memory/group_segments.h"

namespace lockstep {
namespace {

// Gloo that missed the end of a connection: it has tensors in hand for ever.
class FakeStuckBackend final : public c10d::Backend {
 public:
  FakeStuckBackend() : Backend(0, 2) {}

  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions&) override {
    in_hand = {output, input};
    return c10::make_intrusive<test::FakeStuckWork>();
  }
  const std::string getBackendName() const override { return "stuck"; }
  void abort() override {}

  std::vector<at::Tensor> in_hand;
};

bool owns_memory(const at::Tensor& tensor) { return tensor.storage().data_ptr().get_context() != nullptr; }

TEST(GlooTransport, GivesAwayTensorsThatMayOutliveTheMeeting) {
  static const auto backend =
      c10::make_intrusive<FakeStuckBackend>();  // the transport leaves it where it is stuck
  detail::GlooTransport transport(backend);
  transport.abort();
  EXPECT_THROW(detail::open_segments(transport), std::runtime_error);
  ASSERT_EQ(backend->in_hand.size(), 2);
  for (const auto& tensor : backend->in_hand) EXPECT_TRUE(owns_memory(tensor));
}

}  // namespace
}  // namespace lockstep
