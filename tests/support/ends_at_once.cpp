// What links this ends once its own objects are destroyed. LibTorch takes a third of a short process's time
// to destroy its tables behind them; digits, the examples and the suites of GoogleTest still show that this
// ends well, too.
#include <unistd.h>
#include <cstdio>
#include <cstdlib>

namespace {

void end(int code, void*) {
  std::fflush(nullptr);
  ::_exit(code);
}

// Before all other objects of the program are made, so that they are destroyed before; the libraries' are
// older.
[[gnu::constructor(101)]] void ask_for_the_end() { ::on_exit(end, nullptr); }

}  // namespace
