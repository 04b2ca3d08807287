# The ABI is for 64-bit little-endian machines; anything else is refused here, by name.
if(NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  math(EXPR bits "${CMAKE_SIZEOF_VOID_P} * 8")
  message(FATAL_ERROR "bitexact needs a 64-bit target; this one has ${bits}-bit pointers")
endif()
if(CMAKE_CXX_BYTE_ORDER STREQUAL BIG_ENDIAN)
  message(FATAL_ERROR "bitexact needs a little-endian target; this one is big-endian")
endif()
if(NOT CMAKE_SYSTEM_NAME STREQUAL Linux)
  message(FATAL_ERROR "bitexact needs Linux; this target is ${CMAKE_SYSTEM_NAME}")
endif()

set(BITEXACT_REVISION unknown)
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS ${PROJECT_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty --abbrev=12
                  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                  OUTPUT_VARIABLE BITEXACT_REVISION OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
