# How our own targets are compiled and linked. Nothing here touches a global
# flag, so a project that embeds lockstep keeps its own.

if(NOT CMAKE_BUILD_TYPE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

# -O1 for what is to compile fast: it takes a tenth to a fifth less time than -O2, and a precompiled header is still taken,
# which -O0 prevents. Targets below a folder that sets the variable of this name have it.
define_property(TARGET PROPERTY LOCKSTEP_COMPILES_FAST INITIALIZE_FROM_VARIABLE LOCKSTEP_COMPILES_FAST)
# The sanitizers' own checks make a file of -O2 take twice the time of -O1 to compile.
set(_optimisation $<IF:$<OR:$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_COMPILES_FAST>>,$<BOOL:${LOCKSTEP_SANITIZE}>>,1,2>)

# Collecting garbage is an eighth of GCC's time on LibTorch's headers; memory is cheaper.
set(LOCKSTEP_NO_COLLECTION $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=8000000>)

# A precompiled header is refused by GCC unless every flag matches, so all
# targets share this one list; that includes -fPIC on executables.
add_library(lockstep_flags INTERFACE)
target_compile_features(lockstep_flags INTERFACE cxx_std_20)
target_compile_options(lockstep_flags INTERFACE
  -fPIC -fvisibility=hidden -fvisibility-inlines-hidden
  $<$<CONFIG:Release>:-O${_optimisation}> -g1
  ${LOCKSTEP_NO_COLLECTION})

add_library(lockstep_warnings INTERFACE)
target_compile_options(lockstep_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror)

if(LOCKSTEP_SANITIZE STREQUAL "address")
  # vptr needs the type information of LibTorch, which hides it.
  set(_sanitize -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined -fno-omit-frame-pointer
      -Wno-maybe-uninitialized)  # GCC warns of code that the sanitizers themselves add, here and below
elseif(LOCKSTEP_SANITIZE STREQUAL "thread")
  # The fences order what other processes see, of which the sanitizer knows nothing.
  set(_sanitize -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan -Wno-maybe-uninitialized -Wno-array-bounds
      -Wno-stringop-overflow)
elseif(LOCKSTEP_SANITIZE)
  message(FATAL_ERROR "LOCKSTEP_SANITIZE=${LOCKSTEP_SANITIZE}; expected empty, address or thread")
endif()
target_compile_options(lockstep_flags INTERFACE ${_sanitize})
target_link_options(lockstep_flags INTERFACE ${_sanitize})

find_program(LOCKSTEP_MOLD mold)
if(LOCKSTEP_MOLD AND NOT LOCKSTEP_SANITIZE)
  target_link_options(lockstep_flags INTERFACE -fuse-ld=mold)
endif()

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND PROJECT_IS_TOP_LEVEL)
  # The sloppiness is what ccache's manual asks for with precompiled headers. Paths below the checkout are hashed as
  # relative ones, so that what one checkout has compiled, another one need not.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true ${LOCKSTEP_CCACHE})
endif()

# The option `name` of a library that not everybody builds: AUTO, ON or OFF.
function(lockstep_optional_library name help)
  set(${name} AUTO CACHE STRING "${help}")
  set_property(CACHE ${name} PROPERTY STRINGS AUTO ON OFF)
  if(NOT ${name} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${name}=${${name}}; expected AUTO, ON or OFF")
  endif()
endfunction()
