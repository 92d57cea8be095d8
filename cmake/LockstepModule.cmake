# Most of a translation unit's time goes into headers, of LibTorch or of the standard library, so eight files of a
# folder are compiled at a time, in a third of the time. Off, each file must include what it uses.
option(LOCKSTEP_UNITY "Compile several files of a module at once" ON)
set(_files_at_once 8)

# lockstep_sources(TARGET FOLDER a.cpp ...): adds files of the current folder to a target of another one.
function(lockstep_sources target folder)
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  target_sources(${target} PRIVATE ${ARGN})
  set(index 0)
  foreach(file IN LISTS ARGN)
    math(EXPR group "${index} / ${_files_at_once}")
    math(EXPR index "${index} + 1")
    set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
endfunction()

# lockstep_unite(TARGET): its files are compiled together.
function(lockstep_unite target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_MODE GROUP)
  # GCC takes the included .cpp for a header, whose classes should not hold what is local to one file.
  target_compile_options(${target} PRIVATE $<$<BOOL:${LOCKSTEP_UNITY}>:-Wno-subobject-linkage>)
endfunction()

# lockstep_module(NAME [TORCH_FREE] SOURCES a.cpp ...)
# Adds the sources of src/NAME to the torch-free core library or to lockstep.
function(lockstep_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH_FREE" "" "SOURCES")
  set(target lockstep)
  if(arg_TORCH_FREE)
    set(target lockstep_core)
  endif()
  lockstep_sources(${target} ${name} ${arg_SOURCES})
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
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  lockstep_sources(${binary}_tests ${folder} ${arg_SOURCES})
endfunction()
