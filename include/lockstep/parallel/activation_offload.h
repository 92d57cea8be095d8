// Activations that are kept on disk, or those of a device on the host, from forward to backward.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <lockstep/base/export.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

struct ActivationOffload {
  std::filesystem::path directory = {};  ///< must be there; empty: that of temporary files
  std::int64_t min_bytes = 1 << 20;      ///< smaller tensors stay in memory
  std::string option = "directory";      ///< by which users name the directory: for errors

  bool operator==(const ActivationOffload&) const = default;
};

/// Keeps on disk what autograd saves in a forward pass of `module`, which stays as it is, under every
/// strategy; for configure_model and loops of one's own. As torch.autograd.graph.save_on_cpu() or an
/// offload_wrapper() around the module, where the module computes on the CPU:
///
///     ls::offload_activations(*net, {.directory = "/data"});
///
/// From the first operator that uses one of its parameters until backward, saved tensors of `min_bytes` or
/// more are copied into mapped files without names, once for all that share memory; they go to disk when
/// the system needs the memory (cgroups; RLIMIT_DATA does not count them), and backward reads ahead.
/// Gradients have the bits that they have without. With activation checkpointing what comes into the blocks
/// goes to disk. Parameters, and what explicit ls::checkpoint() calls take, stay in memory.
///
/// Where this rank computes on a device, they go to page-locked memory of the host instead, and nothing to
/// disk: copies run beside what is computed, and backward brings the next one along.
///
/// Holds as long as the module lives; another call for the same module replaces the options. Not
/// Collective; blocks to make a folder. Forward throws IoError where the disk has no room.
/// @throws ConfigError for a directory that cannot be written to, a module without parameters or one that
/// no std::shared_ptr owns, and min_bytes below 1
LOCKSTEP_API void offload_activations(const torch::nn::Module& module, const ActivationOffload& options = {});

}  // namespace lockstep
