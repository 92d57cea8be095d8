# lockstep_module(NAME [TORCH_FREE] SOURCES a.cpp ...)
# Adds the sources of src/NAME to the torch-free core library or to lockstep.
function(lockstep_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH_FREE" "" "SOURCES")
  set(target lockstep)
  if(arg_TORCH_FREE)
    set(target lockstep_core)
  endif()
  list(TRANSFORM arg_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  target_sources(${target} PRIVATE ${arg_SOURCES})
endfunction()

# lockstep_program(NAME SOURCES main.cpp ...): bin/NAME on the public library,
# with the library's own precompiled header.
function(lockstep_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE lockstep::lockstep lockstep_flags lockstep_warnings)
  target_precompile_headers(${name} REUSE_FROM lockstep)
  set_target_properties(${name} PROPERTIES BUILD_RPATH_USE_ORIGIN ON)
endfunction()

# lockstep_tests(core|torch SOURCES x_test.cpp ...): adds to one of the two
# test binaries; one binary links once where twenty would link twenty times.
function(lockstep_tests binary)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES")
  list(TRANSFORM arg_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  target_sources(${binary}_tests PRIVATE ${arg_SOURCES})
endfunction()
