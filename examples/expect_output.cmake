# Runs PROGRAM with ARGUMENTS and compares what it prints with the file EXPECTED, byte for byte.
execute_process(COMMAND ${PROGRAM} ${ARGUMENTS} RESULT_VARIABLE result OUTPUT_VARIABLE output)
file(READ ${EXPECTED} expected)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} ended with ${result} after:\n${output}")
elseif(NOT output STREQUAL expected)
  message(FATAL_ERROR "${PROGRAM} printed:\n${output}expected:\n${expected}")
endif()
