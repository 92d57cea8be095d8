// DeepSpeed's comms_logger: what the collectives of a run have taken.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/collective_observer.h>
#include <lockstep/deepspeed/side_sections.h>
#include <lockstep/train/hooks.h>

namespace lockstep::detail {

/// On rank 0, from the first batch to the last: with `verbose` a line for each collective, when the batch is
/// over; a table of all, by name and size, when the training is. `prof_ops` are those that count without
/// `prof_all`, by lockstep's names. Words and units are DeepSpeed's; so is that bandwidths are of all ranks,
/// whoever takes part.
class CommsLog final : public Callback, private CollectiveObserver {
 public:
  explicit CommsLog(deepspeed::CommsLogger options);

  void on_train_start(TrainContext& context) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;
  void on_train_end(TrainContext& context) override;
  void on_exception(TrainContext& context, const std::exception& error) override;

 private:
  struct Call {
    std::size_t kind;
    std::int64_t bytes;
    double milliseconds;
  };
  struct Row {
    std::int64_t count = 0;
    double total_ms = 0;
    std::vector<float> latest_ms = {};  // for means without extremes
  };

  void on_collective(const CollectiveEvent& event) noexcept override;
  void take(const TrainContext& context);
  void print_table(const TrainContext& context) const;

  deepspeed::CommsLogger options_;
  std::vector<bool> counts_;  // by kind
  std::mutex mutex_;          // guards what follows
  std::vector<Call> calls_;
  std::map<std::string, std::map<std::int64_t, Row>> rows_;  // by name and bytes; of the training's thread
  std::optional<ObservedCollectives> scope_;                 // last: what it calls is complete
};

}  // namespace lockstep::detail
