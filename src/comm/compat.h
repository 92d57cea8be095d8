// What drifts in c10d between LibTorch 2.11 and 2.14, in one place; what drifts elsewhere is in
// src/device/compat.h.
#pragma once

#include "comm/c10d.h"

#if __has_include(<torch/csrc/distributed/c10d/store/TCPStoreBackend.hpp>)
#include <torch/csrc/distributed/c10d/store/TCPStoreBackend.hpp>
#else
#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>
#endif
