// Functions of libraries that are loaded while the program runs.
#pragma once

#include <dlfcn.h>

namespace lockstep::detail {

/// `function` becomes the one of that name in `library`, which dlopen() gave; null where there is none.
template <class Function>
void find_symbol(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

}  // namespace lockstep::detail
