# Finds LibTorch and defines lockstep::torch.
#
# Searched in this order: Torch_DIR and CMAKE_PREFIX_PATH, from an installed
# package the folder torch beside it, /opt/torch and the LibTorch that it was
# built with, the torch package of the python3 on PATH, the copy that
# tools/setup.sh keeps in the user's cache.
# We link libtorch_cpu and libc10 by our own imported targets: Torch's own
# config of a CUDA build demands the CUDA toolkit even of CPU programs.

set(LOCKSTEP_TORCH_VERSION 2.13.0)
set(_cache_home "$ENV{XDG_CACHE_HOME}")
if(NOT _cache_home)
  set(_cache_home "$ENV{HOME}/.cache")
endif()

function(_lockstep_torch_candidates out)
  set(dirs "")
  if(Torch_DIR)
    get_filename_component(root "${Torch_DIR}/../../.." ABSOLUTE)
    list(APPEND dirs "${root}")
  endif()
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
    list(APPEND dirs "${prefix}" "${prefix}/torch")
  endforeach()
  list(APPEND dirs ${LOCKSTEP_TORCH_PLACES})
  find_program(_lockstep_python3 python3)
  mark_as_advanced(_lockstep_python3)
  if(_lockstep_python3)
    execute_process(
      COMMAND ${_lockstep_python3} -c
        "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE from_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND dirs "${from_python}")
  endif()
  list(APPEND dirs "${_cache_home}/lockstep/torch-${LOCKSTEP_TORCH_VERSION}/torch")
  list(REMOVE_ITEM dirs "")
  set(${out} "${dirs}" PARENT_SCOPE)
endfunction()

# Says in `out` why the LibTorch under `root` cannot be used, or nothing.
function(_lockstep_torch_refusal root out)
  set(why "")
  file(STRINGS "${root}/include/torch/headeronly/version.h" lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" version "${lines}")
  if(LOCKSTEP_TORCH_MINOR_VERSION_NEEDED AND NOT version VERSION_EQUAL LOCKSTEP_TORCH_MINOR_VERSION_NEEDED)
    set(why "is version ${version}; this lockstep was built for ${LOCKSTEP_TORCH_MINOR_VERSION_NEEDED}")
  elseif(NOT version VERSION_GREATER_EQUAL 2.11 OR NOT version VERSION_LESS 2.15)
    set(why "is version ${version}; expected 2.11 to 2.14")
  else()
    execute_process(COMMAND ldd "${root}/lib/libtorch_cpu.so" OUTPUT_VARIABLE needs ERROR_QUIET)
    string(REGEX MATCHALL "[^\n\t ]+ => not found" missing "${needs}")
    if(missing)
      list(JOIN missing ", " missing)
      set(why "cannot be loaded (${missing}); install its missing libraries or use a CPU build of torch")
    endif()
  endif()
  set(${out} "${why}" PARENT_SCOPE)
endfunction()

if(NOT LOCKSTEP_TORCH_ROOT)
  _lockstep_torch_candidates(_candidates)
  set(_refused "")
  get_filename_component(_asked_for "${Torch_DIR}/../../.." ABSOLUTE)
  foreach(_dir IN LISTS _candidates)
    if(EXISTS "${_dir}/lib/libtorch_cpu.so" AND EXISTS "${_dir}/include/torch/headeronly/version.h")
      _lockstep_torch_refusal("${_dir}" _why)
      if(NOT _why)
        set(LOCKSTEP_TORCH_ROOT "${_dir}" CACHE PATH "LibTorch: the folder that holds include/ and lib/")
        break()
      endif()
      if(Torch_DIR AND _dir STREQUAL _asked_for)
        message(FATAL_ERROR "LibTorch of Torch_DIR:\n  ${_dir} ${_why}")
      endif()
      string(APPEND _refused "\n  ${_dir} ${_why}")
    endif()
  endforeach()
endif()
if(NOT LOCKSTEP_TORCH_ROOT)
  list(JOIN _candidates "\n  " _looked_at)
  set(_expected "2.11 to 2.14")
  set(_remedy "Run tools/setup.sh, which fetches ${LOCKSTEP_TORCH_VERSION}")
  if(LOCKSTEP_TORCH_MINOR_VERSION_NEEDED)
    set(_expected "${LOCKSTEP_TORCH_MINOR_VERSION_NEEDED}")
    set(_remedy "Run pip install \"torch==${_expected}.*\"")
  endif()
  message(FATAL_ERROR
    "LibTorch not found; expected version ${_expected}; looked at Torch_DIR, CMAKE_PREFIX_PATH, places of an "
    "installed lockstep, the torch of python3 on PATH and ${_cache_home}/lockstep, which are:\n"
    "  ${_looked_at}${_refused}\n"
    "${_remedy}, or pass -DTorch_DIR=<libtorch>/share/cmake/Torch.")
endif()
if(_refused)
  message(STATUS "LibTorch passed over:${_refused}")
endif()
message(STATUS "LibTorch: ${LOCKSTEP_TORCH_ROOT}")
file(STRINGS "${LOCKSTEP_TORCH_ROOT}/include/torch/headeronly/version.h" _torch_numbers
     REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM _torch_numbers REPLACE ".* ([0-9]+).*" "\\1")
list(JOIN _torch_numbers "." LOCKSTEP_TORCH_FOUND_VERSION)
string(REGEX MATCH "^[0-9]+[.][0-9]+" LOCKSTEP_TORCH_MINOR_VERSION "${LOCKSTEP_TORCH_FOUND_VERSION}")

if(NOT TARGET lockstep::torch)
  foreach(_lib c10 torch_cpu)
    add_library(lockstep::${_lib} SHARED IMPORTED GLOBAL)
    set_target_properties(lockstep::${_lib} PROPERTIES
      IMPORTED_LOCATION "${LOCKSTEP_TORCH_ROOT}/lib/lib${_lib}.so"
      INTERFACE_INCLUDE_DIRECTORIES
        "${LOCKSTEP_TORCH_ROOT}/include;${LOCKSTEP_TORCH_ROOT}/include/torch/csrc/api/include")
  endforeach()
  add_library(lockstep::torch INTERFACE IMPORTED GLOBAL)
  target_link_libraries(lockstep::torch INTERFACE lockstep::torch_cpu lockstep::c10)
  target_compile_features(lockstep::torch INTERFACE cxx_std_20)
endif()
