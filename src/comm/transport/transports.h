// The table of transports: what CommOptions::backend may name.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <c10/core/DeviceType.h>

#include "comm/transport/connect_options.h"

namespace lockstep::detail {

class Transport;

/// One transport. To add one, make a folder here and add a row.
struct TransportRow {
  using DeviceTypes = std::span<const c10::DeviceType>;
  /// Connects this rank with all others through `store`, the group's own. Collective, blocking.
  /// @throws what `check`, called again and again meanwhile, throws; what the attempt fails with
  using Connect = std::shared_ptr<Transport> (*)(const ConnectOptions& options, const Store& store,
                                                 const FailureCheck& check);

  std::string_view name;       ///< CommOptions::backend
  DeviceTypes devices = {};    ///< it moves tensors of these
  Connect connect = nullptr;   ///< null: this build does not have it
  std::string_view hint = {};  ///< what to do where this build does not have it

  bool is_built_in() const { return connect != nullptr; }
};

/// The row named `name`; null where there is none.
const TransportRow* find_transport(std::string_view name);

/// The names of those that this build has, for texts: "gloo".
std::string transport_names();

}  // namespace lockstep::detail
