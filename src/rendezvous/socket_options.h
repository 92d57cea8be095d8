// How the TCP connections of a job are tuned.
#pragma once

namespace lockstep::rendezvous {

/// For messages that are small and awaited. A machine that vanished is noticed after 11 s: by unanswered
/// probes while nothing is under way, and by what is not acknowledged once something is.
void tune_socket(int fd);

}  // namespace lockstep::rendezvous
