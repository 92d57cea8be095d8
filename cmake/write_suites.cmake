# Run by lockstep_suites(): writes to WRITTEN what CTest is to run of the tests in BINARY. Ranks are threads in many of them, and
# oneDNN's threads wait for each other without giving up their processors: a suite of 3 s took 29 s of them.
execute_process(COMMAND "${BINARY}" --gtest_list_tests OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY TIMEOUT 60)
string(REPLACE ";" "," listed "${listed}")  # in descriptions of parameters
string(REGEX REPLACE " *#[^\n]*" "" listed "${listed}")
string(REPLACE "\n" ";" lines "${listed}")

set(suites "")
set(tests "")
foreach(line IN LISTS lines)
  if(line MATCHES "^([^ ]+)[.]$")
    set(suite "${CMAKE_MATCH_1}")
    string(APPEND suites "  add_test([=[${suite}]=] [=[${BINARY}]=] [=[--gtest_filter=${suite}.*]=])\n"
                         "  set_tests_properties([=[${suite}]=] PROPERTIES TIMEOUT 900 ENVIRONMENT OMP_NUM_THREADS=1)\n")
  elseif(line MATCHES "^  (.+)$")
    set(test "${suite}.${CMAKE_MATCH_1}")
    string(APPEND tests "  add_test([=[${test}]=] [=[${BINARY}]=] [=[--gtest_filter=${test}]=])\n"
                        "  set_tests_properties([=[${test}]=] PROPERTIES TIMEOUT 120 ENVIRONMENT OMP_NUM_THREADS=1)\n")
  endif()
endforeach()
file(WRITE "${WRITTEN}" "if(CTEST_CONFIGURATION_TYPE STREQUAL \"each\")\n${tests}else()\n${suites}endif()\n")
