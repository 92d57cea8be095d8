// DdpLoggingData out of what c10d's Logger gathers.
#include <sstream>

#include "parallel/ddp/bucket_reducer.h"

namespace lockstep::detail {
namespace {

std::int64_t number(const at::DDPLoggingData& from, const char* key) {
  const auto found = from.ints_map.find(key);
  return found == from.ints_map.end() ? 0 : found->second;
}

std::chrono::nanoseconds duration(const at::DDPLoggingData& from, const char* key) {
  return std::chrono::nanoseconds(number(from, key));
}

// c10d gives lists as "3, 1, 2".
std::vector<std::size_t> numbers(const at::DDPLoggingData& from, const char* key) {
  std::vector<std::size_t> list;
  const auto found = from.strs_map.find(key);
  if (found == from.strs_map.end()) return list;
  std::istringstream text(found->second);
  for (std::size_t item = 0; text >> item; text.ignore(1)) list.push_back(item);
  return list;
}

void fill_times(DdpLoggingData& data, const at::DDPLoggingData& from) {
  data.forward_compute_time = duration(from, "forward_compute_time");
  data.backward_compute_time = duration(from, "backward_compute_time");
  data.backward_comm_time = duration(from, "backward_comm_time");
  data.backward_compute_comm_overlap_time = duration(from, "backward_compute_comm_overlap_time");
  data.avg_forward_compute_time = duration(from, "avg_forward_compute_time");
  data.avg_backward_compute_time = duration(from, "avg_backward_compute_time");
  data.avg_backward_comm_time = duration(from, "avg_backward_comm_time");
  data.avg_backward_compute_comm_overlap_time = duration(from, "avg_backward_compute_comm_overlap_time");
}

}  // namespace

void BucketReducer::fill(DdpLoggingData& data) const {
  const auto from = logger_->get_ddp_logging_data();
  data.iteration = number(from, "iteration");
  data.unused_parameter_size = number(from, "unused_parameter_size");
  data.can_set_static_graph = reducer_->ddp_graph_static();
  data.bucket_sizes = bucket_sizes_;
  data.has_rebuilt_buckets = !rebuilt_bucket_sizes_.empty();
  data.rebuilt_bucket_sizes = rebuilt_bucket_sizes_;
  for (const auto index : numbers(from, "prev_iteration_grad_ready_order_indices")) {
    if (index < trained_.size()) data.prev_iteration_grad_ready_order.push_back(trained_[index].name);
  }
  fill_times(data, from);
}

}  // namespace lockstep::detail
