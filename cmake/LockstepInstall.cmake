# `cmake --install` and find_package(lockstep), which also finds a build folder given as lockstep_DIR.
include(CMakePackageConfigHelpers)

install(TARGETS lockstep lockstep_core EXPORT lockstepTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
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
