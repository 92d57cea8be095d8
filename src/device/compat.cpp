#include "device/compat.h"

namespace lockstep::detail {
namespace {

// An explicit instantiation may name private members: this is how one gets at them.
template <class Tag, typename Tag::type kMember>
struct PrivateMember {
  friend typename Tag::type member_of(Tag) { return kMember; }
};

struct ThrowsOnAccess {
  using type = bool c10::StorageImpl::*;
  friend type member_of(ThrowsOnAccess);
};
struct RefreshChecks {
  using type = void (c10::StorageImpl::*)();
  friend type member_of(RefreshChecks);
};
template struct PrivateMember<ThrowsOnAccess, &c10::StorageImpl::throw_on_immutable_data_ptr_>;
template struct PrivateMember<RefreshChecks, &c10::StorageImpl::refresh_has_data_ptr_check>;

template <class Storage>
concept AllowsAccessAgain = requires(Storage& storage) {
  storage.clear_data_ptr_access_error_msg_();
};

// A template, so that the call of what is not there is never compiled.
template <class Storage>
void allow(Storage& storage) {
  if constexpr (AllowsAccessAgain<Storage>) {
    storage.clear_data_ptr_access_error_msg_();
  } else {
    storage.*member_of(ThrowsOnAccess{}) = false;
    (storage.*member_of(RefreshChecks{}))();
  }
}

}  // namespace

void allow_access(c10::StorageImpl& storage) { allow(storage); }

}  // namespace lockstep::detail
