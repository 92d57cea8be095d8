// What LibTorch's dispatcher finds for the device.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

namespace lockstep::sim {

/// Runs any operator that has a kernel for the CPU on the current stream. What the operator returns is as
/// large as what it returns for zeros. Where the result is no tensor, or its size depends on the values, the
/// host waits.
void run_on_stream(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Each adds the operators that its file is about; `aten` is the library for PrivateUse1.
void add_memory_operators(torch::Library& aten);
void add_copies(torch::Library& aten);
void add_own_operators(torch::Library& aten);
void add_recurrent_operators(torch::Library& aten, torch::Library& autograd);
void add_autocast(torch::Library& aten_autocast);

}  // namespace lockstep::sim
