# Run at each build: writes a header that says which commit is checked out in SOURCE, if any, whether files differ from
# it, and its date; else today's, or that of SOURCE_DATE_EPOCH. The header is written anew only where it changes.
# Usage: cmake -DSOURCE=FOLDER -DHEADER=FILE -P write_commit.cmake
cmake_minimum_required(VERSION 3.25)
set(commit "")
string(TIMESTAMP date "%Y-%m-%d" UTC)
if(EXISTS "${SOURCE}/.git")
  execute_process(COMMAND git --no-optional-locks -C "${SOURCE}" log -1 "--format=%H %cs"
                  OUTPUT_VARIABLE line OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(line MATCHES "^([0-9a-f]+) ([0-9-]+)$")
    set(commit "${CMAKE_MATCH_1}")
    set(date "${CMAKE_MATCH_2}")
    execute_process(COMMAND git --no-optional-locks -C "${SOURCE}" diff --quiet HEAD
                    OUTPUT_QUIET ERROR_QUIET RESULT_VARIABLE differs)
    if(NOT differs EQUAL 0)
      string(APPEND commit ", with changes")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT "${HEADER}" @ONLY CONTENT "#pragma once
inline constexpr const char* kLockstepCommit = \"@commit@\";
inline constexpr const char* kLockstepDate = \"@date@\";
")
