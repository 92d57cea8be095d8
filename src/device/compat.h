// What drifts between LibTorch 2.11 and 2.14, in one place; but what drifts in c10d is in src/comm/compat.h.
#pragma once

#include <c10/core/StorageImpl.h>

namespace lockstep::detail {

/// Takes release_data_and_set_meta_custom_data_ptr_error_msg_() back: `storage` may be given memory again.
/// LibTorch before 2.13 has no public function for that.
void allow_access(c10::StorageImpl& storage);

}  // namespace lockstep::detail
