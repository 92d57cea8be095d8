// What a function of the host has thrown that a compiled program called: it is thrown again, as it was, by
// whatever next runs a program or waits for one, as of the plug-in's own error only the text would be left.
#pragma once

namespace lockstep::xla {

/// Keeps the exception that is being handled, unless one is kept already. Thread-safe, as the others.
void keep_host_failure();
/// @throws the exception that is kept; nothing that programs give is of use then
void rethrow_host_failure();
void forget_host_failure();

}  // namespace lockstep::xla
