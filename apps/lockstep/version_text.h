// What `lockstep --version` prints.
#pragma once

#include <string>

/// The commit that this program was built from, ", with changes" behind it where files differed; empty: not
/// from a repository.
std::string built_commit();

/// "lockstep 0.1.0", and a line for each fact of the build.
std::string version_text();
