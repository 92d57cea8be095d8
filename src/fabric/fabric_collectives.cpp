// The part of Fabric that exchanges data between ranks.
#include <exception>
#include <sstream>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/fabric/fabric.h>
#include <lockstep/torch.h>

namespace lockstep {
namespace {

// Element type and shape, as text.
std::string described(const at::Tensor& tensor) {
  std::ostringstream text;
  text << static_cast<int>(tensor.scalar_type());
  for (const auto extent : tensor.sizes()) text << ' ' << extent;
  return text.str();
}

at::Tensor empty_like(const std::string& description) {
  std::istringstream text(description);
  int type = 0;
  text >> type;
  std::vector<std::int64_t> shape;
  for (std::int64_t extent = 0; text >> extent;) shape.push_back(extent);
  return at::empty(shape, static_cast<at::ScalarType>(type));
}

void require_defined(const Fabric& fabric, const at::Tensor& tensor, const char* call) {
  if (tensor.defined()) return;
  throw ConfigError("fabric", {.what = std::string(call) + " on rank " + std::to_string(fabric.global_rank()),
                               .expected = "a tensor",
                               .got = "an undefined one"});
}

}  // namespace

const Communicator& Fabric::communicator() const { return strategy().communicator(); }

at::Tensor Fabric::all_gather(const at::Tensor& tensor) const {
  require_defined(*this, tensor, "all_gather()");
  std::vector<std::int64_t> shape{world_size()};
  shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
  const auto gathered = at::empty(shape, tensor.detach().options());
  communicator().all_gather(gathered, tensor.detach());
  return gathered;
}

at::Tensor Fabric::all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  require_defined(*this, tensor, "all_reduce()");
  auto reduced = tensor.detach().clone();
  communicator().all_reduce(reduced, op);
  return reduced;
}

double Fabric::all_reduce(double value, ReduceOp op) const {
  return all_reduce(at::scalar_tensor(value, at::kDouble), op).item<double>();
}

at::Tensor Fabric::broadcast(const at::Tensor& tensor, int source) const {
  const bool is_source = global_rank() == source;
  if (is_source) require_defined(*this, tensor, "broadcast()");
  const auto description = communicator().broadcast_bytes(is_source ? described(tensor) : "", source);
  auto received = is_source ? tensor.detach() : empty_like(description);
  communicator().broadcast(received, source);
  return received;
}

std::string Fabric::broadcast(const std::string& text, int source) const {
  return communicator().broadcast_bytes(text, source);
}

void Fabric::barrier() const { communicator().barrier(); }

void Fabric::rank_zero_first(const std::function<void()>& function, bool local) const {
  const bool is_first = (local ? local_rank() : global_rank()) == 0;
  if (!is_first) barrier();
  std::exception_ptr failure;
  try {
    function();
  } catch (...) {
    failure = std::current_exception();
  }
  try {
    if (is_first) barrier();
  } catch (const std::exception& error) {
    if (!failure) throw;
    log_warning(std::string("after a failure, letting the other ranks begin failed too: ") + error.what());
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep
