// Which threads this process has.
#pragma once

namespace lockstep::detail {

/// Whether this process has, beside a single thread, only those of lockstep, Gloo and LibTorch that issue no
/// collectives. False when in doubt.
bool is_alone();

}  // namespace lockstep::detail
