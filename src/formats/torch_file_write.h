// Files of torch.save whose storages are made one after the other.
#pragma once

#include <functional>

#include <lockstep/formats/torch_file.h>

namespace lockstep::torch_file {

/// A storage. What `bytes` gives is needed until the next one is asked for.
struct StorageSource {
  std::string key;
  std::function<std::span<const std::byte>()> bytes;
};

/// As write(), with each storage asked for when it is written.
LOCKSTEP_API void write_each(zip::Writer& archive, const pickle::Value& root,
                             std::span<const StorageSource> storages);

}  // namespace lockstep::torch_file
