// What is the same in every page.
#pragma once

namespace lockstep::detail {

extern const char* const kPageStyle;   ///< CSS; colours are for eyes that tell few apart, for light and dark
extern const char* const kPageScript;  ///< shows values where the pointer is; the page works without it

}  // namespace lockstep::detail
