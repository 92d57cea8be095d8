#include "parallel/ddp/reduction_log.h"

#include <algorithm>
#include <utility>

namespace lockstep::detail {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

nanoseconds between(steady_clock::time_point begin, steady_clock::time_point end) {
  return begin == steady_clock::time_point() ? nanoseconds(0) : std::max(nanoseconds(0), end - begin);
}

void add_to_average(nanoseconds& average, nanoseconds value, std::int64_t samples) {
  average += (value - average) / samples;
}

}  // namespace

void ReductionLog::end_step() {
  if (takes_times_) forward_ = steady_clock::now();
}

void ReductionLog::begin_pass() {
  ++passes_;
  reduction_ = {};
  if (is_sampled()) backward_ = steady_clock::now();
}

void ReductionLog::begin_reduction() {
  if (is_sampled() && reduction_ == Time()) reduction_ = steady_clock::now();
}

void ReductionLog::end_gradients() {
  if (is_sampled()) gradients_ = steady_clock::now();
}

void ReductionLog::end_pass() {
  if (!is_sampled()) return;
  const auto now = steady_clock::now();
  last_ = {.forward = between(forward_, backward_),
           .backward = between(backward_, gradients_),
           .communication = between(reduction_, now),
           .overlap = between(reduction_, gradients_)};
  ++samples_;
  last_sample_ = passes_;
  add_to_average(average_.forward, last_.forward, samples_);
  add_to_average(average_.backward, last_.backward, samples_);
  add_to_average(average_.communication, last_.communication, samples_);
  add_to_average(average_.overlap, last_.overlap, samples_);
}

void ReductionLog::set_unused(std::vector<std::size_t> unused, bool may_differ) {
  if (may_differ && passes_ > 1 && unused != unused_) is_static_ = false;
  unused_ = std::move(unused);
}

void ReductionLog::fill(DdpLoggingData& data, const std::vector<NamedTensor>& trained) const {
  data.iteration = last_sample_;
  data.can_set_static_graph = is_static_;
  for (const auto index : unused_)
    data.unused_parameter_size += static_cast<std::int64_t>(trained[index].tensor.nbytes());
  data.forward_compute_time = last_.forward;
  data.backward_compute_time = last_.backward;
  data.backward_comm_time = last_.communication;
  data.backward_compute_comm_overlap_time = last_.overlap;
  data.avg_forward_compute_time = average_.forward;
  data.avg_backward_compute_time = average_.backward;
  data.avg_backward_comm_time = average_.communication;
  data.avg_backward_compute_comm_overlap_time = average_.overlap;
}

}  // namespace lockstep::detail
