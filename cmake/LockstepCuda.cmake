# LOCKSTEP_CUDA says whether liblockstep_cuda.so is built, which brings NCCL and kernels of our own to NVIDIA's GPUs. Programs that
# train on CPUs neither carry nor load it. It needs headers only: those of CUDA's runtime and of the NCCL that LibTorch was built
# with. What it calls is in LibTorch's own libraries for CUDA, which are there where it is loaded.
# Searched in this order: LOCKSTEP_CUDA_ROOT, what tools/cuda.sh keeps in the user's cache, the packages beside a torch of pip, an
# installed toolkit.
lockstep_optional_library(LOCKSTEP_CUDA "Build liblockstep_cuda.so: AUTO (where the headers are there), ON or OFF")
set(LOCKSTEP_CUDA_ROOT "" CACHE PATH "Folder whose include/ has the headers of CUDA's runtime and NCCL")

set(LOCKSTEP_CUDA_IS_BUILT OFF)
if(NOT LOCKSTEP_CUDA STREQUAL OFF)
  get_filename_component(_packages "${LOCKSTEP_TORCH_ROOT}/.." ABSOLUTE)
  set(_cuda_folders ${LOCKSTEP_CUDA_ROOT}/include "${_cache_home}/lockstep/cuda-${LOCKSTEP_TORCH_MINOR_VERSION}/include"
      "${_packages}/nvidia/nccl/include")
  foreach(_major 13 12)
    list(APPEND _cuda_folders "${_packages}/nvidia/cu${_major}/include")
  endforeach()
  list(APPEND _cuda_folders "${_packages}/nvidia/cuda_runtime/include")
  find_program(LOCKSTEP_NVCC nvcc PATHS /usr/local/cuda/bin)
  mark_as_advanced(LOCKSTEP_NVCC)
  if(LOCKSTEP_NVCC)
    get_filename_component(_toolkit "${LOCKSTEP_NVCC}" REALPATH)
    get_filename_component(_toolkit "${_toolkit}/../.." ABSOLUTE)
  endif()
  list(APPEND _cuda_folders "${_toolkit}/include" /usr/local/cuda/include)

  find_path(LOCKSTEP_NCCL_INCLUDE nccl.h PATHS ${_cuda_folders} NO_DEFAULT_PATH)
  find_path(LOCKSTEP_NCCL_INCLUDE nccl.h)
  find_path(LOCKSTEP_CUDA_INCLUDE cuda_runtime_api.h PATHS ${_cuda_folders} NO_DEFAULT_PATH)
  # The packages of pip have it apart from the rest.
  find_path(LOCKSTEP_CUDA_CRT_INCLUDE crt/host_defines.h PATHS ${_cuda_folders} NO_DEFAULT_PATH)
  mark_as_advanced(LOCKSTEP_NCCL_INCLUDE LOCKSTEP_CUDA_INCLUDE LOCKSTEP_CUDA_CRT_INCLUDE)
  set(_missing "")
  foreach(_what IN ITEMS LOCKSTEP_NCCL_INCLUDE=nccl.h LOCKSTEP_CUDA_INCLUDE=cuda_runtime_api.h
                         LOCKSTEP_CUDA_CRT_INCLUDE=crt/host_defines.h)
    string(REPLACE "=" ";" _what ${_what})
    list(GET _what 0 _variable)
    if(NOT ${_variable})
      list(GET _what 1 _header)
      list(APPEND _missing ${_header})
    endif()
  endforeach()
  list(JOIN _missing ", " _missing)
  if(NOT _missing)
    set(LOCKSTEP_CUDA_IS_BUILT ON)
    file(STRINGS "${LOCKSTEP_CUDA_INCLUDE}/cuda_runtime_api.h" _line REGEX "#define CUDART_VERSION +[0-9]+")
    string(REGEX REPLACE ".*CUDART_VERSION +([0-9]+)[0-9][0-9][0-9].*" "\\1" LOCKSTEP_CUDA_MAJOR "${_line}")
    message(STATUS "CUDA ${LOCKSTEP_CUDA_MAJOR}: ${LOCKSTEP_CUDA_INCLUDE}; NCCL: ${LOCKSTEP_NCCL_INCLUDE}")
  elseif(LOCKSTEP_CUDA STREQUAL ON)
    list(JOIN _cuda_folders "\n  " _looked_at)
    message(FATAL_ERROR "LOCKSTEP_CUDA=ON, but these headers are not there: ${_missing}; looked at\n  ${_looked_at}\n"
                        "Run tools/cuda.sh, which fetches them, or pass -DLOCKSTEP_CUDA_ROOT=FOLDER.")
  else()
    message(STATUS "liblockstep_cuda.so is not built: ${_missing} not found (`make cuda` fetches what it needs)")
  endif()
endif()
