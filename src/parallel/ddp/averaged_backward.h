// One backward that averages the gradients of several models.
#pragma once

#include <vector>

#include "parallel/ddp/bucket_reducer.h"

namespace lockstep::detail {

class AveragedBackward {
 public:
  explicit AveragedBackward(at::Tensor loss) : loss_(std::move(loss)) {}
  /// Lets the graph go.
  ~AveragedBackward();
  AveragedBackward(const AveragedBackward&) = delete;
  AveragedBackward& operator=(const AveragedBackward&) = delete;

  /// Before it: a model that takes part. Models send in the order of these calls.
  void add(BucketReducer& reducer, int divisor);

  /// Then: follows the graph to its end.
  void follow();

 private:
  void complete();

  at::Tensor loss_;
  std::vector<BucketReducer*> reducers_;
  unsigned hook_ = 0;
  bool follows_ = false;
};

}  // namespace lockstep::detail
