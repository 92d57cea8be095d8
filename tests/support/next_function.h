// For functions that stand in front of those of a library.
#pragma once

#include <dlfcn.h>

namespace lockstep::test {

/// The function that would be called if this program had none of this name; of type `Function`, a pointer.
template <class Function>
Function next_function(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace lockstep::test
