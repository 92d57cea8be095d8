// Numbers of printf and strtod with a point, whatever the locale of the program.
#pragma once

#include <locale.h>

namespace lockstep::detail {

/// As long as it lives, printf and strtod of this thread have a point in numbers; a program may have chosen a
/// locale with a comma by setlocale().
class NumbersWithPoint {
 public:
  NumbersWithPoint() : before_(::uselocale(plain())) {}
  ~NumbersWithPoint() { ::uselocale(before_); }
  NumbersWithPoint(const NumbersWithPoint&) = delete;
  NumbersWithPoint& operator=(const NumbersWithPoint&) = delete;

 private:
  static locale_t plain() {
    static const locale_t made = ::newlocale(LC_ALL_MASK, "C", nullptr);
    return made;
  }

  locale_t before_;
};

}  // namespace lockstep::detail
