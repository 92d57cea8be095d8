# A port for `vcpkg install lockstep --overlay-ports=packaging/vcpkg`, of this checkout. LibTorch is found as docs/building.md says,
# or by Torch_DIR in VCPKG_CMAKE_CONFIGURE_OPTIONS of a triplet.
vcpkg_check_linkage(ONLY_DYNAMIC_LIBRARY)
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DLOCKSTEP_BUILD_TESTS=OFF -DLOCKSTEP_BUILD_EXAMPLES=OFF -DLOCKSTEP_BUILD_BENCHMARKS=OFF)
vcpkg_cmake_install()
vcpkg_copy_tools(TOOL_NAMES lockstep lockstep-demo AUTO_CLEAN)
vcpkg_cmake_config_fixup(PACKAGE_NAME lockstep CONFIG_PATH lib/cmake/lockstep)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
