#include "sim/operators.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/DeviceGuard.h>

#include "sim/generator.h"
#include "sim/kernel_views.h"
#include "sim/runtime.h"

namespace lockstep::sim {
namespace {

using torch::jit::Stack;

// Replaces every tensor of an argument: Tensor, Tensor?, Tensor[] or Tensor?[].
template <class Replace>
void replace_tensors(c10::IValue& value, const Replace& replace) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) value = replace(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> made;
    for (const at::Tensor& tensor : value.toTensorVector())
      made.push_back(tensor.defined() ? replace(tensor) : tensor);
    value = made;
  } else if (value.isList()) {
    const auto elements = value.toListRef();
    if (std::ranges::none_of(elements, [](const auto& element) { return element.isTensor(); })) return;
    c10::List<std::optional<at::Tensor>> made;
    for (const auto& element : elements) {
      const bool is_there = element.isTensor() && element.toTensor().defined();
      made.push_back(is_there ? std::optional(replace(element.toTensor())) : std::nullopt);
    }
    value = made;
  }
}

bool is_written(const c10::AliasInfo* alias) { return alias != nullptr && alias->isWrite(); }

bool depends_on_values(const c10::OperatorHandle& op) {
  for (const auto tag : op.getTags())
    if (tag == at::Tag::dynamic_output_shape || tag == at::Tag::data_dependent_output) return true;
  for (const auto& result : op.schema().returns()) {
    const auto kind = result.type()->kind();
    if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType) return true;
  }
  return false;
}

// An operator's call on its way to the stream.
class Call {
 public:
  Call(const c10::OperatorHandle& op, std::vector<c10::IValue> arguments)
      : op_(op),
        name_(c10::toString(op.operator_name())),
        arguments_(std::move(arguments)),
        device_(find_device()) {}

  c10::Device device() const { return device_; }

  std::vector<c10::IValue> run() {
    collect_arguments();
    if (resize_outputs()) collect_arguments();
    return depends_on_values(op_) ? run_now() : run_later();
  }

 private:
  c10::Device find_device() {
    std::optional<c10::Device> device;
    for (auto& argument : arguments_) {
      replace_tensors(argument, [&](const at::Tensor& tensor) {
        if (is_on_sim(tensor) && !device) device = tensor.device();
        return tensor;
      });
      if (!device && argument.isDevice() && argument.toDevice().type() == kDeviceType)
        device = argument.toDevice();
    }
    TORCH_CHECK(device, "sim: ", name_, " was given no tensor of a device");
    return device->has_index() ? *device
                               : c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(current_device()));
  }

  void collect_arguments() {
    stack_.clear();
    spans_.clear();
    views_ = {};
    for (std::size_t i = 0; i < arguments_.size(); ++i) stack_.push_back(for_kernel(i));
  }

  // An `out` that has no elements yet gets as many as the operator gives it.
  bool resize_outputs() {
    Stack made;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const auto& argument = op_.schema().arguments()[i];
      if (!argument.is_out() || !arguments_[i].isTensor() || arguments_[i].toTensor().numel() > 0) continue;
      if (made.empty()) made = rehearse();
      for (std::size_t r = 0; r < made.size(); ++r) {
        const auto* const alias = op_.schema().returns()[r].alias_info();
        if (alias == nullptr || alias->beforeSets() != argument.alias_info()->beforeSets()) continue;
        arguments_[i].toTensor().resize_(made[r].toTensor().sizes());
      }
    }
    return !made.empty();
  }

  c10::IValue for_kernel(std::size_t i) {
    const auto& argument = op_.schema().arguments()[i];
    auto value = arguments_[i];
    const bool writes = is_written(argument.alias_info());
    replace_tensors(value, [&](const at::Tensor& tensor) {
      if (tensor.device() == device_) {
        add_span(spans_, tensor, writes);
        return views_.of(tensor);
      }
      check_host_tensor(tensor, argument.name(), writes);
      return tensor.clone();
    });
    if (value.isDevice()) value = c10::Device(c10::kCPU);
    if (value.isGenerator() || (value.isNone() && argument.name() == "generator")) {
      generator_ = value.isGenerator() ? value.toGenerator() : default_generator(device_.index());
      generator_argument_ = i;
      value = host_generator({});
    }
    return value;
  }

  // As on other devices: numbers in tensors of the CPU, and indices.
  void check_host_tensor(const at::Tensor& tensor, const std::string& argument, bool writes) const {
    TORCH_CHECK(!writes, name_, ": ", argument, " is written on ", device_, " but is on ", tensor.device());
    const bool is_index = name_.starts_with("aten::index") || name_.starts_with("aten::_index");
    TORCH_CHECK(tensor.device().is_cpu() && (tensor.dim() == 0 || is_index),
                "Expected all tensors to be on the same device: ", name_, " was given one on ",
                tensor.device(), " and one on ", device_);
  }

  // The operator runs on zeros, to tell how its results look.
  Stack rehearse() const {
    Stack stack(stack_);
    for (auto& value : stack) {
      replace_tensors(value, [](const at::Tensor& tensor) {
        return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()).zero_();
      });
      if (value.isGenerator()) value = host_generator({});
    }
    op_.callBoxed(stack);
    return stack;
  }

  // Results that are arguments, and tensors of the device in place of those in `made`, in `fresh_` too.
  std::vector<c10::IValue> results(const Stack& made) {
    std::vector<c10::IValue> results;
    for (std::size_t r = 0; r < op_.schema().returns().size(); ++r) {
      if (const auto* const alias = op_.schema().returns()[r].alias_info()) {
        results.push_back(argument_of(*alias));
        continue;
      }
      auto value = made[r];
      replace_tensors(value, [&](const at::Tensor& tensor) {
        const auto options = tensor.options().device(device_);
        auto fresh = at::empty_strided(tensor.sizes(), tensor.strides(), options);
        add_span(spans_, fresh, /*is_written=*/true);
        fresh_.push_back(views_.of(fresh));
        return fresh;
      });
      results.push_back(std::move(value));
    }
    return results;
  }

  c10::IValue argument_of(const c10::AliasInfo& alias) const {
    TORCH_CHECK(alias.isWrite(), "sim: ", name_, " makes a view, and has no kernel of its own");
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const auto* const own = op_.schema().arguments()[i].alias_info();
      if (is_written(own) && own->beforeSets() == alias.beforeSets()) return arguments_[i];
    }
    TORCH_CHECK(false, "sim: ", name_, " returns an argument that it does not have");
  }

  std::vector<c10::IValue> run_now() {
    note_host_sync(name_);
    // Orders what runs here after what the stream has written, and tells when something else is not.
    const int stream = current_stream(device_.index());
    enqueue(stream, {.op = name_, .spans = spans_, .body = [](const Launch&) {}});
    wait_for_stream(stream);
    auto made = stack_;
    if (generator_.defined()) made[generator_argument_] = host_generator(next_state(generator_));
    op_.callBoxed(made);
    spans_.clear();
    auto returned = results(made);
    if (!fresh_.empty()) {
      std::vector<at::Tensor> values;
      for (std::size_t r = 0; r < made.size(); ++r)
        if (!op_.schema().returns()[r].alias_info()) collect(made[r], values);
      enqueue(stream, {.op = name_, .spans = spans_, .body = [fresh = fresh_, values](const Launch&) {
                         const KernelScope scope;
                         for (std::size_t i = 0; i < fresh.size(); ++i) fresh[i].copy_(values[i]);
                       }});
    }
    return returned;
  }

  std::vector<c10::IValue> run_later() {
    const auto& returns = op_.schema().returns();
    const bool makes_tensors = std::ranges::any_of(returns, [](const auto& r) { return !r.alias_info(); });
    auto returned = results(makes_tensors ? rehearse() : Stack());
    Kernel kernel{.op = name_, .spans = spans_, .generator = generator_};
    kernel.body = [op = op_, stack = stack_, fresh = fresh_, draws = generator_.defined(),
                   generator = generator_argument_](const Launch& launch) {
      const KernelScope scope;
      auto made = stack;
      if (draws) made[generator] = host_generator(launch.random);
      op.callBoxed(made);
      std::vector<at::Tensor> values;
      for (std::size_t r = 0; r < made.size(); ++r)
        if (!op.schema().returns()[r].alias_info()) collect(made[r], values);
      for (std::size_t i = 0; i < fresh.size(); ++i) fresh[i].copy_(values[i]);
    };
    enqueue(current_stream(device_.index()), std::move(kernel));
    return returned;
  }

  static void collect(c10::IValue value, std::vector<at::Tensor>& tensors) {
    replace_tensors(value, [&](const at::Tensor& tensor) {
      tensors.push_back(tensor);
      return tensor;
    });
  }

  const c10::OperatorHandle& op_;
  std::string name_;
  std::vector<c10::IValue> arguments_;
  c10::Device device_;
  KernelViews views_;
  Stack stack_;  ///< the arguments as a kernel takes them
  std::vector<Span> spans_;
  std::vector<at::Tensor> fresh_;
  at::Generator generator_;
  std::size_t generator_argument_ = 0;
};

}  // namespace

void run_on_stream(const c10::OperatorHandle& op, Stack* stack) {
  throw_failure();
  const auto count = op.schema().arguments().size();
  Call call(op, torch::jit::last(*stack, count).vec());
  const c10::DeviceGuard guard(call.device());
  const KernelScope scope;
  auto results = call.run();
  torch::jit::drop(*stack, count);
  for (auto& result : results) torch::jit::push(*stack, std::move(result));
}

}  // namespace lockstep::sim
