// Ranks that train on streams agree which batch is the last one.
#include <lockstep/fabric/fabric_loader.h>

#include <deque>
#include <utility>

#include <ATen/ops/full.h>

namespace lockstep {
namespace {

class CommunicatorAgreement final : public BatchAgreement {
 public:
  explicit CommunicatorAgreement(Communicator communicator) : communicator_(std::move(communicator)) {}

  int num_ranks() const override { return communicator_.size(); }

  void ask(bool has_batch) override {
    const at::Tensor count = at::full({1}, has_batch ? 1 : 0, at::kInt);
    asked_.push_back({count, communicator_.all_reduce_async(count)});
  }

  int answer() override {
    Question question = std::move(asked_.front());
    asked_.pop_front();
    question.work.wait();
    return question.count.item<int>();
  }

 private:
  struct Question {
    at::Tensor count;
    Work work;
  };

  Communicator communicator_;
  std::deque<Question> asked_;
};

}  // namespace

std::shared_ptr<AnyLoader> agree_on_batches(std::shared_ptr<AnyLoader> loader,
                                            const Communicator& communicator, UnevenStreams uneven) {
  const auto make = [communicator]() -> std::unique_ptr<BatchAgreement> {
    return std::make_unique<CommunicatorAgreement>(communicator);
  };
  return look_ahead(std::move(loader), make, uneven);
}

}  // namespace lockstep
