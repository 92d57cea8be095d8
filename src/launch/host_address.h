// Where the hosts of a job meet.
#pragma once

#include <ifaddrs.h>

#include <string>

#include <lockstep/base/export.h>

namespace lockstep::launch {

/// A numeric address at which the others can reach `host` ([USER@]NAME as ssh takes it): what its name stands
/// for here or, where that is this machine itself, an address of one of its interfaces. The name itself where
/// it stands for nothing here, as ssh's own names do. Blocks as long as the system's resolver does.
std::string address_of_host(const std::string& host);

/// Of the addresses of a machine's interfaces one at which others may reach it: of IPv4 where there is one,
/// else of IPv6; empty: there is none.
LOCKSTEP_API std::string reachable_address(const ifaddrs* interfaces);

}  // namespace lockstep::launch
