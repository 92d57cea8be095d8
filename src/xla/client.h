// Client: the devices of a plug-in.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "xla/plugin.h"

namespace lockstep::xla {

/// What a plug-in is given when a client is made, such as cpu_device_count = 2. Whole and other numbers,
/// true and false are given as such, all else as text.
using CreateOptions = std::map<std::string, std::string>;

/// "cpu_device_count=2,NAME=VALUE" as options. @throws ConfigError for a part without a name and "="
CreateOptions parse_create_options(std::string_view text);

class Client {
 public:
  /// Starts the plug-in's threads. Blocks.
  /// @throws ConfigError naming the file, for options that the plug-in refuses, and where there is no device
  /// @param partitions  how many devices each program runs on, from the first on: ConfigError for more than
  ///   there are
  explicit Client(std::shared_ptr<const Plugin> plugin, const CreateOptions& options = {},
                  int partitions = 1);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Plugin& plugin() const { return *plugin_; }
  const PJRT_Api& api() const { return plugin_->api(); }
  PJRT_Client* get() const { return client_; }
  /// "cpu", "cuda", "tpu".
  const std::string& platform() const { return platform_; }
  /// Those of this process.
  int device_count() const { return static_cast<int>(devices_.size()); }
  /// Where there are fewer, they are counted anew from 0 on: those of CPUs are all the same processors, and a
  /// process that sees one of several devices has it under any number.
  /// That of the first partition, where there are several.
  PJRT_Device* device(int index) const {
    return devices_[partitions_ > 1 ? 0 : static_cast<std::size_t>(index) % devices_.size()];
  }
  PJRT_Device* partition_device(std::size_t partition) const { return devices_[partition]; }
  /// How many devices, from the first on, each program runs on. Where there are several, they are one device
  /// of LibTorch, whatever its number, and XLA divides programs among them.
  int partitions() const { return partitions_; }

 private:
  void find_devices();

  std::shared_ptr<const Plugin> plugin_;
  PJRT_Client* client_ = nullptr;
  std::string platform_;
  std::vector<PJRT_Device*> devices_;
  int partitions_ = 1;
};

}  // namespace lockstep::xla
