include(CMakePackageConfigHelpers)

install(TARGETS bitexact EXPORT bitexact
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES include/bitexact.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/bitexact)
install(EXPORT bitexact NAMESPACE bitexact:: FILE bitexact-targets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/bitexact-config.cmake.in ${PROJECT_BINARY_DIR}/bitexact-config.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/bitexact-config-version.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/bitexact-config.cmake ${PROJECT_BINARY_DIR}/bitexact-config-version.cmake
  DESTINATION ${package_dir})

# Relative, so that an installed tree can be moved.
file(RELATIVE_PATH BITEXACT_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/bitexact.pc.in ${PROJECT_BINARY_DIR}/bitexact.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/bitexact.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
