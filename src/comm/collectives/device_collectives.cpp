#include "comm/collectives/device_collectives.h"

#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <lockstep/device/torch_device.h>

#include "device/cuda_plugin.h"
#include "device/own_kernels.h"

namespace lockstep::detail {
namespace {

using Tensors = std::vector<at::Tensor>;

// Up to here all rows come to all ranks, which is one call in place of two.
constexpr std::int64_t kSmallBytes = 256 << 10;

// Calls use(tensor) for each tensor of a call.
template <class Call, class Use>
void for_each_tensor_of(Call& collective, const Use& use) {
  if (collective.output.defined()) use(collective.output);
  if (collective.input.defined()) use(collective.input);
  for (auto& tensor : collective.outputs) use(tensor);
  for (auto& tensor : collective.inputs) use(tensor);
}

// The same call on contiguous tensors.
Collective made_contiguous(const Collective& original) {
  auto collective = original;
  for_each_tensor_of(collective,
                     [](at::Tensor& tensor) { tensor = tensor.resolve_conj().resolve_neg().contiguous(); });
  return collective;
}

void write_back(const at::Tensor& tensor, const at::Tensor& twin) {
  if (tensor.defined() && !tensor.is_same(twin)) tensor.copy_(twin);
}

bool has_nothing_to_move(const Collective& collective) {
  const auto& operand = operand_of(collective);
  return !operand.defined() || (operand.numel() == 0 && !row_of(collective.kind).is_uneven() &&
                                !row_of(collective.kind).takes_lists);
}

// What is moved is bytes; backends know few element types.
at::Tensor bytes_of_tensor(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

// What NCCL reduces.
bool is_reduced_by_devices(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
    case at::kFloat:
    case at::kHalf:
    case at::kBFloat16:
    case at::kLong:
    case at::kInt:
    case at::kChar:
    case at::kByte:
      return true;
    default:
      return false;
  }
}

// As reduce_rows() widens.
at::ScalarType widened(at::ScalarType dtype) {
  if (at::isIntegralType(dtype, /*includeBool=*/true)) return at::kLong;
  return at::isReducedFloatingType(dtype) ? at::kFloat : dtype;
}

at::Tensor combined(const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return a + b;
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
      return at::where((a < b).logical_or(a != a), a, b);
    case ReduceOp::kMax:
      return at::where((a > b).logical_or(a != a), a, b);
    case ReduceOp::kBitAnd:
      return a.bitwise_and(b);
    case ReduceOp::kBitOr:
      return a.bitwise_or(b);
    case ReduceOp::kBitXor:
      return a.bitwise_xor(b);
  }
  return a;
}

// One level of the tree of reduce_rows(): neighbours are combined, a last one alone goes up as it is.
at::Tensor combined_neighbours(const at::Tensor& rows, ReduceOp op) {
  const auto pairs = rows.size(0) / 2;
  const auto paired = rows.narrow(0, 0, 2 * pairs).view({pairs, 2, rows.size(1)});
  const auto level = combined(paired.select(1, 0), paired.select(1, 1), op);
  return rows.size(0) % 2 == 0 ? level : at::cat({level, rows.narrow(0, rows.size(0) - 1, 1)});
}

// By a tensor: kernels multiply by the reciprocal of a number of the host, which rounds otherwise.
at::Tensor divided(const at::Tensor& sums, std::int64_t by) {
  if (sums.is_complex()) return at::view_as_complex(divided(at::view_as_real(sums), by));
  return sums / at::full({}, by, sums.options());
}

// By a kernel of our own, where there is one; else undefined.
at::Tensor summed_by_kernel(const at::Tensor& rows, ReduceOp op) {
  const auto type = cuda_type(rows.scalar_type());
  const bool is_sum = op == ReduceOp::kSum || op == ReduceOp::kAvg;
  const auto launch = own_kernels(rows.device()).sum_rows;
  if (launch == nullptr || !type || !is_sum || rows.size(0) > kMostCudaRows) return {};
  auto output = at::empty({rows.size(1)}, rows.options());
  const CudaRowSum sum{.rows = rows.const_data_ptr(),
                       .output = output.mutable_data_ptr(),
                       .size = rows.size(1),
                       .row_count = static_cast<int>(rows.size(0)),
                       .type = *type,
                       .is_average = op == ReduceOp::kAvg};
  check_cuda_launch(launch(sum, kernel_stream(rows)), "sum_rows");
  return output;
}

}  // namespace

at::Tensor reduced_rows(const at::Tensor& rows, ReduceOp op) {
  if (auto sum = summed_by_kernel(rows, op); sum.defined()) return sum;
  const auto dtype = rows.scalar_type();
  auto level = rows.to(widened(dtype));
  while (level.size(0) > 1) level = combined_neighbours(level, op);
  level = level.squeeze(0);
  if (op == ReduceOp::kAvg) level = divided(level, rows.size(0));
  return level.to(dtype);
}

DeviceCall::DeviceCall(Collective collective, const c10::Stream& stream)
    : collective_(std::move(collective)),
      stream_(stream),
      done_(std::make_shared<c10::Event>(stream.device_type())) {}

// Tensors that no stream was made to wait for may be used by the group's stream still when they are freed.
DeviceCall::~DeviceCall() {
  const c10::impl::VirtualGuardImpl device(stream_.device_type());
  for_each_tensor_of(collective_, [&](const at::Tensor& tensor) {
    if (tensor.has_storage()) device.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
  });
}

void DeviceCall::order_outputs() {
  done_->block(current_stream(stream_.device()));
  release_tensors();
}

void DeviceCall::await_outputs() {
  done_->synchronize();
  release_tensors();
}

void DeviceCall::release_tensors() {
  collective_.output.reset();
  collective_.input.reset();
  collective_.outputs.clear();
  collective_.inputs.clear();
}

DeviceCollectives::DeviceCollectives(c10::intrusive_ptr<c10d::Backend> backend, Reduction reduction,
                                     c10::Device device, CountSent count_sent)
    : backend_(std::move(backend)),
      reduction_(reduction),
      stream_(side_stream(device)),
      count_sent_(std::move(count_sent)),
      rank_(backend_->getRank()),
      size_(backend_->getSize()) {}

std::shared_ptr<DeviceCall> DeviceCollectives::post(const Collective& collective) {
  const at::NoGradGuard no_grad;
  order_streams(current_stream(stream_.device()), stream_);
  const c10::StreamGuard guard(stream_);
  auto call = std::make_shared<DeviceCall>(collective, stream_);
  if (!has_nothing_to_move(collective)) {
    const auto contiguous = made_contiguous(collective);
    (this->*row_of(collective.kind).run_on_devices)(contiguous);
    write_back(collective.output, contiguous.output);
    for (std::size_t i = 0; i < collective.outputs.size(); ++i)
      write_back(collective.outputs[i], contiguous.outputs[i]);
  }
  call->note_posted();
  return call;
}

// The group's stream is the current one.
void DeviceCollectives::order(const c10::intrusive_ptr<c10d::Work>& work) const { work->wait(); }

// Of minima and maxima backends let NaN get lost.
bool DeviceCollectives::is_native(const Collective& collective, at::ScalarType dtype) const {
  if (reduction_ != Reduction::kFast || !is_reduced_by_devices(dtype)) return false;
  switch (collective.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kProduct:
      return true;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return at::isIntegralType(dtype, /*includeBool=*/false);
    default:
      return false;
  }
}

at::Tensor DeviceCollectives::gathered(const at::Tensor& part) {
  auto from = bytes_of_tensor(part);
  auto to = at::empty({size_ * from.numel()}, from.options());
  order(backend_->_allgather_base(to, from));
  count_sent_((size_ - 1) * from.numel());
  return to.view(part.scalar_type()).view({size_, part.numel()});
}

// This rank's part of the reduction of `tensor`, whose elements are dealt out in equal chunks; the last ones
// may lie behind its end.
at::Tensor DeviceCollectives::reduced_chunk(const at::Tensor& tensor, ReduceOp op) {
  const auto chunk = (tensor.numel() + size_ - 1) / size_;
  const auto rest = chunk * size_ - tensor.numel();
  const auto flat = tensor.view({-1});
  auto from = bytes_of_tensor(rest == 0 ? flat : at::cat({flat, at::zeros({rest}, flat.options())}));
  auto to = at::empty_like(from);
  std::vector<std::int64_t> equal;
  order(backend_->alltoall_base(to, from, equal, equal));
  count_sent_(from.numel() / size_ * (size_ - 1));
  return reduced_rows(to.view(tensor.scalar_type()).view({size_, chunk}), op);
}

// The same bits as on the CPU, and as many bytes on the wire as a ring sends.
void DeviceCollectives::reduce_all(const at::Tensor& tensor, ReduceOp op) {
  if (tensor.numel() == 0) return;
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes()) * size_;
  const auto flat = tensor.view({-1});
  if (bytes <= kSmallBytes) {
    flat.copy_(reduced_rows(gathered(flat), op));
    return;
  }
  flat.copy_(gathered(reduced_chunk(tensor, op)).view({-1}).narrow(0, 0, flat.numel()));
}

void DeviceCollectives::all_reduce(const Collective& collective) {
  const auto& tensor = collective.output;
  if (!is_native(collective, tensor.scalar_type())) return reduce_all(tensor, collective.op);
  Tensors tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = native_op(collective.op);
  order(backend_->allreduce(tensors, options));
  count_sent_(2 * (size_ - 1) * static_cast<std::int64_t>(tensor.nbytes()) / size_);
}

void DeviceCollectives::all_reduce_list(const Collective& collective) {
  auto tensors = collective.outputs;
  std::erase_if(tensors, [](const at::Tensor& tensor) { return tensor.numel() == 0; });
  if (tensors.empty()) return;
  if (is_native(collective, tensors.front().scalar_type())) {
    c10d::AllreduceCoalescedOptions options;
    options.reduceOp = native_op(collective.op);
    order(backend_->allreduce_coalesced(tensors, options));
    count_sent_(2 * (size_ - 1) * bytes_in(tensors) / size_);
    return;
  }
  Tensors flat;
  for (const auto& tensor : tensors) flat.push_back(tensor.view({-1}));
  const auto packed = at::cat(flat);
  reduce_all(packed, collective.op);
  std::int64_t begin = 0;
  for (const auto& tensor : flat) {
    tensor.copy_(packed.narrow(0, begin, tensor.numel()));
    begin += tensor.numel();
  }
}

// The chunks of the result go to the root, whose tensor alone is written.
void DeviceCollectives::reduce(const Collective& collective) {
  const auto& tensor = collective.output;
  const auto part = reduced_chunk(tensor, collective.op);
  Tensors to(static_cast<std::size_t>(size_)), from;
  to[static_cast<std::size_t>(collective.root)] = part;
  const bool is_root = rank_ == collective.root;
  const auto whole = is_root ? at::empty({size_, part.numel()}, part.options()) : at::Tensor();
  if (is_root) from = whole.unbind();
  exchange(std::move(to), std::move(from));
  if (is_root) tensor.view({-1}).copy_(whole.view({-1}).narrow(0, 0, tensor.numel()));
}

void DeviceCollectives::broadcast(const Collective& collective) {
  Tensors tensors{bytes_of_tensor(collective.output)};
  c10d::BroadcastOptions options;
  options.rootRank = collective.root;
  order(backend_->broadcast(tensors, options));
  if (rank_ == collective.root) count_sent_((size_ - 1) * tensors[0].numel());
}

void DeviceCollectives::all_gather(const Collective& collective) {
  auto to = bytes_of_tensor(collective.output);
  auto from = bytes_of_tensor(collective.input);
  order(backend_->_allgather_base(to, from));
  count_sent_((size_ - 1) * from.numel());
}

void DeviceCollectives::all_gather_list(const Collective& collective) {
  exchange(Tensors(static_cast<std::size_t>(size_), collective.input), collective.outputs);
}

void DeviceCollectives::gather(const Collective& collective) {
  Tensors to(static_cast<std::size_t>(size_));
  to[static_cast<std::size_t>(collective.root)] = collective.input;
  exchange(std::move(to), collective.outputs);
}

void DeviceCollectives::scatter(const Collective& collective) {
  Tensors from(static_cast<std::size_t>(size_));
  from[static_cast<std::size_t>(collective.root)] = collective.output;
  exchange(collective.inputs, std::move(from));
}

void DeviceCollectives::reduce_scatter(const Collective& collective) {
  const auto& output = collective.output;
  if (is_native(collective, output.scalar_type())) {
    auto to = output.view({-1}), from = collective.input.view({-1});
    c10d::ReduceScatterOptions options;
    options.reduceOp = native_op(collective.op);
    order(backend_->_reduce_scatter_base(to, from, options));
    count_sent_((size_ - 1) * static_cast<std::int64_t>(to.nbytes()));
    return;
  }
  output.view({-1}).copy_(reduced_chunk(collective.input, collective.op));
}

void DeviceCollectives::all_to_all(const Collective& collective) {
  auto to = bytes_of_tensor(collective.output);
  auto from = bytes_of_tensor(collective.input);
  const int size = static_cast<int>(size_);
  auto given = bytes_by_rank(collective.input, collective.input_splits, size);
  auto taken = bytes_by_rank(collective.output, collective.output_splits, size);
  const auto kept = given[static_cast<std::size_t>(rank_)];
  order(backend_->alltoall_base(to, from, taken, given));
  count_sent_(from.numel() - kept);
}

void DeviceCollectives::all_to_all_list(const Collective& collective) {
  exchange(collective.inputs, collective.outputs);
}

// Transport::exchange().
void DeviceCollectives::exchange(Tensors to, Tensors from) {
  const auto none = at::empty({0}, at::TensorOptions(stream_.device()).dtype(at::kByte));
  std::int64_t sent = 0;
  for (auto* const list : {&to, &from}) {
    list->resize(static_cast<std::size_t>(size_));
    for (auto& tensor : *list) tensor = tensor.defined() ? bytes_of_tensor(tensor) : none;
  }
  for (std::int64_t rank = 0; rank < size_; ++rank)
    if (rank != rank_) sent += to[static_cast<std::size_t>(rank)].numel();
  order(backend_->alltoall(from, to));
  count_sent_(sent);
}

}  // namespace lockstep::detail
