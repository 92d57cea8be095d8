// Functions of the host that compiled programs call: how ranks meet inside of a program. Plug-ins for CPUs
// can do that from version 0.106 of PJRT's interface on.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "device/xla_library_interface.h"
#include "xla/client.h"

namespace lockstep::xla {

/// Tells the plug-in of the function that all calls go through. Does nothing where it knows no such
/// functions. Once, before programs are compiled or loaded. @throws Error with the plug-in's words
void enable_host_calls(const Client& client);
/// Whether programs can call the host.
bool can_call_host();

/// As the members of XlaLibrary by these names. Thread-safe.
int add_host_function(detail::XlaHostFunction function);
void remove_host_function(int number);
void record_host_call(int number, std::span<const at::Tensor> tensors, bool ends_step);

}  // namespace lockstep::xla
