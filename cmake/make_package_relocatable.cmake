# Run by cpack when a package's files are laid out. Debian's packages look for LibTorch in /opt/torch.
set(place "")
if(CPACK_GENERATOR STREQUAL DEB)
  set(place -D PLACE=/opt/torch)
endif()
execute_process(COMMAND_ERROR_IS_FATAL ANY COMMAND ${CMAKE_COMMAND} -D ROOT=${CPACK_TEMPORARY_DIRECTORY}
                -D TORCH=${CPACK_LOCKSTEP_TORCH_ROOT} ${place} -P ${CMAKE_CURRENT_LIST_DIR}/make_relocatable.cmake)
