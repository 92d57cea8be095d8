# LOCKSTEP_XLA says whether liblockstep_xla.so is built, which brings XLA through PJRT plug-ins: compiled steps on CPUs, GPUs and
# TPUs. Who uses no plug-in neither carries nor loads it. It needs one header, PJRT's C interface, and no plug-in.
# Searched in this order: LOCKSTEP_PJRT_INCLUDE, what tools/xla.sh keeps in the user's cache.
lockstep_optional_library(LOCKSTEP_XLA "Build liblockstep_xla.so: AUTO (where PJRT's header is there), ON or OFF")
set(LOCKSTEP_PJRT_INCLUDE "" CACHE PATH "Folder with pjrt_c_api.h")

set(LOCKSTEP_XLA_IS_BUILT OFF)
set(_pjrt "${_cache_home}/lockstep/pjrt-0.115")
# The plug-in that tests run on.
set(LOCKSTEP_XLA_TEST_PLUGIN "${_pjrt}/pjrt_c_api_cpu_plugin.so" CACHE FILEPATH "PJRT plug-in for CPUs that the tests run on")
if(LOCKSTEP_TORCH_MINOR_VERSION VERSION_LESS 2.13)
  if(LOCKSTEP_XLA STREQUAL ON)
    message(FATAL_ERROR "LOCKSTEP_XLA=ON needs LibTorch 2.13 or later; this is ${LOCKSTEP_TORCH_MINOR_VERSION}")
  endif()
  message(STATUS "liblockstep_xla.so is not built: it needs LibTorch 2.13 or later")
elseif(NOT LOCKSTEP_XLA STREQUAL OFF)
  find_path(LOCKSTEP_PJRT_HEADER_FOLDER pjrt_c_api.h PATHS "${LOCKSTEP_PJRT_INCLUDE}" "${_pjrt}/include" NO_DEFAULT_PATH)
  mark_as_advanced(LOCKSTEP_PJRT_HEADER_FOLDER)
  if(LOCKSTEP_PJRT_HEADER_FOLDER)
    set(LOCKSTEP_XLA_IS_BUILT ON)
    message(STATUS "PJRT: ${LOCKSTEP_PJRT_HEADER_FOLDER}")
  elseif(LOCKSTEP_XLA STREQUAL ON)
    message(FATAL_ERROR "LOCKSTEP_XLA=ON, but pjrt_c_api.h is not there; looked at\n"
                        "  ${LOCKSTEP_PJRT_INCLUDE}\n  ${_pjrt}/include\n"
                        "Run tools/xla.sh, which fetches it, or pass -DLOCKSTEP_PJRT_INCLUDE=FOLDER.")
  else()
    message(STATUS "liblockstep_xla.so is not built: pjrt_c_api.h not found (`make xla` fetches it)")
  endif()
endif()
