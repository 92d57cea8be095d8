# Most of a translation unit's time goes into headers, of LibTorch or of the standard library, so files of a folder are
# compiled together: 24 take 40 s where three times eight take 68. Whoever edits takes fewer (preset
# dev: 8), since a change compiles its whole group anew. With 0, each file is compiled alone and must include what it uses.
set(LOCKSTEP_FILES_AT_ONCE 24 CACHE STRING "How many files are compiled together; 0: none")

# GCC takes up to 3.2 GB for such a group, so Ninja runs as many compilers as the machine has memory for.
cmake_host_system_information(RESULT _memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
math(EXPR _compilers "${_memory_mib} / 3500 + 1")
set_property(GLOBAL APPEND PROPERTY JOB_POOLS lockstep_compilers=${_compilers})
set(CMAKE_JOB_POOL_COMPILE lockstep_compilers)

# Names the unit of a folder of `files`, which is few: that of the folders before it, while it has room.
function(_lockstep_shared_unit result target folder files)
  get_property(unit GLOBAL PROPERTY LOCKSTEP_SHARED_UNIT_OF_${target})
  get_property(taken GLOBAL PROPERTY LOCKSTEP_SHARED_FILES_OF_${target})
  math(EXPR taken "0${taken} + ${files}")
  if(NOT unit OR taken GREATER LOCKSTEP_FILES_AT_ONCE)
    set(unit from_${folder})
    set(taken ${files})
  endif()
  set_property(GLOBAL PROPERTY LOCKSTEP_SHARED_UNIT_OF_${target} ${unit})
  set_property(GLOBAL PROPERTY LOCKSTEP_SHARED_FILES_OF_${target} ${taken})
  set(${result} ${unit} PARENT_SCOPE)
endfunction()

# lockstep_sources(TARGET FOLDER a.cpp ...): adds files of the current folder to a target of another one. Folders of few
# files, one behind the other, share a unit: even an empty file takes GCC 7 s with LibTorch's headers.
function(lockstep_sources target folder)
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  target_sources(${target} PRIVATE ${ARGN})
  if(NOT LOCKSTEP_FILES_AT_ONCE)
    return()
  endif()
  list(LENGTH ARGN files)
  math(EXPR twice "${files} * 2")
  set(unit ${folder})
  if(twice LESS_EQUAL LOCKSTEP_FILES_AT_ONCE)
    _lockstep_shared_unit(unit ${target} ${folder} ${files})
  endif()
  math(EXPR groups "(${files} + ${LOCKSTEP_FILES_AT_ONCE} - 1) / ${LOCKSTEP_FILES_AT_ONCE}")
  set(index 0)
  foreach(file IN LISTS ARGN)
    math(EXPR group "${index} * ${groups} / ${files}")
    math(EXPR index "${index} + 1")
    set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${unit}_${group})
  endforeach()
endfunction()

# lockstep_unite(TARGET [BATCH]): its files are compiled together, by their groups or as they stand in its list.
function(lockstep_unite target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "BATCH" "" "")
  if(NOT LOCKSTEP_FILES_AT_ONCE)
    return()
  endif()
  set(mode GROUP)
  if(arg_BATCH)
    set(mode BATCH)
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE ${mode} UNITY_BUILD_BATCH_SIZE ${LOCKSTEP_FILES_AT_ONCE})
  # GCC takes the included .cpp for a header, whose classes should not hold what is local to one file.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
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

# lockstep_program(NAME SOURCES main.cpp ...): bin/NAME on the public library, with the library's own precompiled header. Its
# files are compiled together: with that header, even an empty file takes GCC 7 s, for templates that LibTorch's inline functions use.
function(lockstep_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE lockstep::lockstep lockstep_flags lockstep_warnings)
  target_precompile_headers(${name} REUSE_FROM lockstep)
  set_target_properties(${name} PROPERTIES BUILD_RPATH_USE_ORIGIN ON)
  lockstep_unite(${name} BATCH)
endfunction()

# lockstep_tests(core|torch SOURCES x_test.cpp ...): adds to one of the two
# test binaries; one binary links once where twenty would link twenty times.
function(lockstep_tests binary)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES")
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  lockstep_sources(${binary}_tests ${folder} ${arg_SOURCES})
endfunction()
