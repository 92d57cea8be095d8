// LOCKSTEP_API marks what the shared libraries export; all else is hidden.
#pragma once

#define LOCKSTEP_API __attribute__((visibility("default")))
