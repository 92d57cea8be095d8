// The recorder: one boxed kernel for all operators of the device. An operator that has a lowering becomes a
// node of the graph, with the shapes that LibTorch's kernel for Meta tells; the others run on the CPU.
#include <algorithm>
#include <chrono>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "xla/device.h"
#include "xla/generator.h"
#include "xla/lowering.h"

namespace lockstep::xla {

Counts& counted();

namespace {

using torch::jit::Stack;

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

template <class Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList()) {
    for (const auto& element : value.toListRef())
      if (element.isTensor() && element.toTensor().defined()) visit(element.toTensor());
  }
}

// An operator's call on its way into the graph.
class Recording {
 public:
  Recording(const c10::OperatorHandle& op, const Row& row, std::vector<c10::IValue> given)
      : op_(op), row_(row), given_(std::move(given)), node_(std::make_shared<Node>()) {
    node_->row = &row;
    node_->schema = &op.schema();
    for (const auto& value : given_) for_each_tensor(value, [&](const at::Tensor& tensor) { note(tensor); });
  }

  // Whether it can be recorded: not with tensors of the CPU or of other types.
  bool is_possible() const {
    return device_ && has_known_types_ && !has_host_tensor_ &&
           (row_.accepts == nullptr || row_.accepts({op_.schema(), given_}));
  }

  // Whether LibTorch tells the shapes of the results.
  bool has_known_shapes() {
    try {
      infer_outputs();
      return true;
    } catch (const c10::NotImplementedError&) {
      return false;
    }
  }

  void record(Stack* stack) {
    begin_operator(*device_, row_.is_optimizer_step);
    for (std::size_t i = 0; i < given_.size(); ++i) add_argument(i);
    if (row_.is_random) node_->inputs.push_back(next_random_state(generator(), *device_));
    return_results(stack);
    note_operator(*device_);
  }

 private:
  const std::vector<c10::Argument>& arguments() const { return op_.schema().arguments(); }

  void note(const at::Tensor& tensor) {
    has_known_types_ = has_known_types_ && has_type(tensor.scalar_type());
    if (tensor.device().type() == c10::kXLA) {
      if (!first_.defined()) first_ = tensor;
      if (first_.device() != tensor.device()) refuse_two_devices(first_.device(), tensor.device());
      device_ = tensor.device().index();
    } else if (tensor.dim() > 0) {
      has_host_tensor_ = true;
    }
  }

  [[noreturn]] void refuse_two_devices(at::Device one, at::Device other) const {
    throw Error("xla",
                {.what = op_.schema().name() + " is given tensors of two XLA devices",
                 .expected = "tensors of one device, as a program runs on one",
                 .got = one.str() + " and " + other.str(),
                 .hint = "move one of them with .to(); for training on several devices use the strategy "
                         "xla, which starts a process for each"});
  }

  Shape shape_together(const Given& given) const {
    const auto self = given["self"].toTensor(), other = given["other"].toTensor();
    const auto sizes = at::infer_size(self.sizes(), other.sizes());
    if (row_.is_truth) return {sizes, at::kBool};
    return {at::infer_size(given["condition"].toTensor().sizes(), sizes), at::result_type(self, other)};
  }

  // Of the results of an operator that writes nothing.
  Shapes result_shapes() const {
    const Given given{op_.schema(), given_};
    if (!row_.like.empty()) return {given.shape(row_.like)};
    if (row_.is_truth || row_.is_choice) return {shape_together(given)};
    Shapes shapes;
    if (row_.shapes != nullptr) shapes = row_.shapes(given);
    if (!shapes.empty()) return shapes;
    for (const auto& result : meta_results())
      for_each_tensor(result, [&](const at::Tensor& tensor) {
        shapes.push_back(Shape{tensor.sizes().vec(), tensor.scalar_type()});
      });
    return shapes;
  }

  // An `out` without elements gets as many as the operator gives it; they are the last arguments.
  void grow_outs() {
    std::vector<std::size_t> empty;
    for (std::size_t i = 0; i < given_.size(); ++i)
      if (arguments()[i].is_out() && given_[i].isTensor() && given_[i].toTensor().numel() == 0)
        empty.push_back(i);
    if (empty.empty()) return;
    const auto shapes = result_shapes();
    for (const auto i : empty) {
      const auto place = i - (given_.size() - shapes.size());
      if (place < shapes.size() && shapes[place]) given_[i].toTensor().resize_(shapes[place]->sizes);
    }
  }

  // What is written, in the order of the arguments, and results that are not what is written.
  void infer_outputs() {
    grow_outs();
    for (std::size_t i = 0; i < given_.size(); ++i)
      if (writes(i))
        for_each_tensor(given_[i], [&](const at::Tensor& tensor) { written_.push_back(tensor); });
    for (const auto& tensor : written_)
      node_->outputs.push_back({tensor.sizes().vec(), tensor.scalar_type()});
    const bool has_results_beside = !row_.written.empty() && !op_.schema().returns().empty();
    if (written_.empty() || has_results_beside) results_ = result_shapes();
    for (const auto& result : results_)
      if (result) node_->outputs.push_back(*result);
  }

  bool writes(std::size_t i) const {
    if (row_.written.empty()) return is_written(arguments()[i]);
    if (row_.writes != nullptr && !row_.writes({op_.schema(), given_})) return false;
    return std::ranges::find(row_.written, arguments()[i].name()) != row_.written.end();
  }

  Stack meta_results() const {
    Stack stack;
    for (const auto& value : given_) stack.push_back(on_meta(value));
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    op_.callBoxed(stack);
    return stack;
  }

  static at::Tensor on_meta(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    auto meta = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
      meta.unsafeGetTensorImpl()->set_wrapped_number(true);
    return meta;
  }

  static c10::IValue on_meta(const c10::List<std::optional<at::Tensor>>& tensors) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : tensors)
      list.push_back(tensor ? std::optional(on_meta(*tensor)) : std::nullopt);
    return list;
  }

  static c10::IValue on_meta(const c10::IValue& value) {
    if (value.isTensor()) return on_meta(value.toTensor());
    if (value.isDevice()) return c10::Device(at::kMeta);
    if (value.isOptionalTensorList()) return on_meta(value.toOptionalTensorList());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(on_meta(tensor));
    return list;
  }

  // Of the tensors that are there.
  static std::vector<std::int64_t> places_of(at::ArrayRef<c10::IValue> list) {
    std::vector<std::int64_t> places;
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].isTensor() && list[i].toTensor().defined()) places.push_back(static_cast<std::int64_t>(i));
    return places;
  }

  void add_argument(std::size_t i) {
    const auto& value = given_[i];
    Argument argument{.first = static_cast<int>(node_->inputs.size())};
    if (value.isTensor() || value.isTensorList()) {
      for_each_tensor(value, [&](const at::Tensor& tensor) { node_->inputs.push_back(value_of(tensor)); });
    } else if (value.isOptionalTensorList()) {
      argument.value = places_of(value.toListRef());
      for_each_tensor(value, [&](const at::Tensor& tensor) { node_->inputs.push_back(value_of(tensor)); });
    } else if (is_given_as_array(i)) {
      node_->inputs.push_back(number(value.toScalar()));
    }
    argument.count = static_cast<int>(node_->inputs.size()) - argument.first;
    const bool is_value = argument.count == 0;
    if (is_value) argument.first = -1;
    if (is_value && !value.isTensor() && !value.isTensorList() && !value.isGenerator())
      argument.value = value;
    node_->arguments.push_back(std::move(argument));
  }

  std::optional<at::Generator> generator() const {
    const auto given = Given{op_.schema(), given_}["generator"];
    return given.isGenerator() ? std::optional(given.toGenerator()) : std::nullopt;
  }

  // A tensor of the CPU without dimensions is a number.
  Value value_of(const at::Tensor& tensor) const {
    if (tensor.device().type() == c10::kXLA) return read(tensor);
    return number(tensor.item());
  }

  // 0 and 1 make simpler programs.
  bool is_given_as_array(std::size_t i) const {
    if (!given_[i].isScalar() || std::ranges::find(row_.numbers, arguments()[i].name()) == row_.numbers.end())
      return false;
    const double value = given_[i].toScalar().toDouble();
    return value != 0.0 && value != 1.0;
  }

  // In the type in which LibTorch takes numbers together with the first tensor. Those of optimizers stay
  // exact.
  Value number(const at::Scalar& scalar) const {
    auto dtype = first_.scalar_type();
    if (row_.is_optimizer_step) dtype = at::kDouble;
    if (!at::isFloatingType(dtype) && scalar.isFloatingPoint()) dtype = at::kFloat;
    return number_value(scalar.toDouble(), dtype, *device_);
  }

  void return_results(Stack* stack) {
    std::size_t output = 0;
    for (const auto& tensor : written_) write(tensor, {node_, output++});
    std::vector<at::Tensor> made;
    if (row_.written.empty()) made = written_;
    for (const auto& shape : results_) {
      made.push_back(shape ? make_tensor(shape->sizes, shape->dtype, *device_) : at::Tensor());
      if (shape) write(made.back(), {node_, output++});
    }
    torch::jit::drop(*stack, given_.size());
    if (op_.schema().returns().empty()) return;
    for (auto& tensor : made) torch::jit::push(*stack, std::move(tensor));
  }

  const c10::OperatorHandle& op_;
  const Row& row_;
  std::vector<c10::IValue> given_;
  std::shared_ptr<Node> node_;
  std::vector<at::Tensor> written_;
  Shapes results_;
  std::optional<c10::DeviceIndex> device_;
  at::Tensor first_;
  bool has_known_types_ = true, has_host_tensor_ = false;
};

void run_on_cpu(const c10::OperatorHandle& op, Stack* stack) {
  note_fallback(c10::toString(op.operator_name()));
  const auto begin = std::chrono::steady_clock::now();
  at::native::cpu_fallback(op, stack);
  const std::lock_guard lock(device_mutex());
  counted().on_cpu_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void run_or_record(const c10::OperatorHandle& op, Stack* stack) {
  const auto* const row = find_row(op.schema().name());
  if (row == nullptr) return run_on_cpu(op, stack);
  {
    const std::lock_guard lock(device_mutex());
    Recording recording(op, *row, torch::jit::last(*stack, op.schema().arguments().size()).vec());
    if (recording.is_possible() && recording.has_known_shapes()) return recording.record(stack);
  }
  run_on_cpu(op, stack);
}

// These LibTorch would take apart, for its own kernels to put them together again.
TORCH_LIBRARY_IMPL(aten, XLA, library) {
  for (const auto* const whole :
       {"convolution", "convolution_backward", "native_layer_norm", "native_group_norm"})
    library.impl(whole, torch::CppFunction::makeFromBoxedFunction<&run_or_record>());
}

TORCH_LIBRARY_IMPL(_, XLA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_or_record>());
}

}  // namespace
}  // namespace lockstep::xla
