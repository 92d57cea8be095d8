# lockstep_suites(TARGET): makes the tests of a GoogleTest binary known to CTest, in two forms. By default each suite is
# one test and one process, because loading LibTorch takes longer than most tests do. Under `ctest -C each`, which the
# preset `each` gives, every test is one of its own, called Suite.Test, so that -R selects it.
# The binary is asked for its tests when it has been linked.
set(_write_suites "${CMAKE_CURRENT_LIST_DIR}/write_suites.cmake")

function(lockstep_suites target)
  set(written "${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake")
  set(none_yet "${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake")
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM BYPRODUCTS "${written}"
    COMMAND ${CMAKE_COMMAND} -D "BINARY=$<TARGET_FILE:${target}>" -D "WRITTEN=${written}" -P "${_write_suites}")
  file(WRITE "${none_yet}" "if(EXISTS \"${written}\")\n  include(\"${written}\")\nelse()\n"
    "  add_test(${target}_NOT_BUILT ${target}_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${none_yet}")
endfunction()
