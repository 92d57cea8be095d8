# `cmake --install` and find_package(lockstep), which also finds a build folder given as lockstep_DIR; packages of cpack.
# Components: runtime (libraries), dev (what programs are built with), tools (the command, set in apps/).
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dev)

install(TARGETS lockstep lockstep_core EXPORT lockstepTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(TARGETS lockstep_pch EXPORT lockstepTargets)
install(DIRECTORY include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION ${_package_dir})
configure_package_config_file(cmake/lockstepConfig.cmake.in lockstepConfig.cmake INSTALL_DESTINATION ${_package_dir})
write_basic_package_version_file(lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  "${CMAKE_CURRENT_BINARY_DIR}/lockstepConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/lockstepConfigVersion.cmake"
  cmake/LockstepTorch.cmake
  DESTINATION ${_package_dir})
export(EXPORT lockstepTargets NAMESPACE lockstep:: FILE "${CMAKE_CURRENT_BINARY_DIR}/lockstepTargets.cmake")
configure_file(cmake/LockstepTorch.cmake LockstepTorch.cmake COPYONLY)

configure_file(cmake/lockstep.pc.in lockstep.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/lockstep.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# What `cmake --install` needs to be built.
add_custom_target(installable)
foreach(_target IN ITEMS lockstep lockstep_core lockstep_cuda lockstep_xla lockstep_command lockstep_self_test demo)
  if(TARGET ${_target})
    add_dependencies(installable ${_target})
  endif()
endforeach()
