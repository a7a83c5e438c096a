# libsluice: the layer api with all below it as libsluice.so.0, as libsluice.a and with what finds them (sluice.pc, a
# CMake package). The component `devel` is all of it; `library` and `development` are its halves, for packages
# (SluiceInstall.cmake). None is part of an installation that names no component.
include(GNUInstallDirs)
include(SluicePackage)
include(CMakePackageConfigHelpers)
set(sluice_library_layers api control exec elements graph ports formats flows qos tables batch memory net base)

file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/libsluice.cpp" CONTENT "// Nothing: the layers are what counts.\n")
add_library(libsluice SHARED "${CMAKE_BINARY_DIR}/libsluice.cpp")
set_target_properties(libsluice PROPERTIES OUTPUT_NAME sluice EXPORT_NAME sluice SOVERSION 0 VERSION ${PROJECT_VERSION}
  LINK_DEPENDS "${CMAKE_SOURCE_DIR}/src/api/sluice.map")
target_link_libraries(libsluice PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,sluice_api>")
target_link_options(libsluice PRIVATE "LINKER:--version-script=${CMAKE_SOURCE_DIR}/src/api/sluice.map" "LINKER:-z,defs")
target_include_directories(libsluice INTERFACE "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:include>")

# One archive of all layers: whoever links it needs nothing of the build.
set(archive "${CMAKE_BINARY_DIR}/libsluice.a")
set(script "CREATE ${archive}\n")
set(parts sluice_revision)
foreach(layer ${sluice_library_layers})
  get_target_property(type sluice_${layer} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    list(APPEND parts sluice_${layer})
  endif()
endforeach()
foreach(part ${parts})
  string(APPEND script "ADDLIB $<TARGET_FILE:${part}>\n")
endforeach()
file(GENERATE OUTPUT "${CMAKE_BINARY_DIR}/libsluice.mri" CONTENT "${script}SAVE\nEND\n")
add_custom_command(OUTPUT "${archive}" COMMAND ${CMAKE_AR} -M < "${CMAKE_BINARY_DIR}/libsluice.mri"
  DEPENDS ${parts} "${CMAKE_BINARY_DIR}/libsluice.mri" VERBATIM)
add_custom_target(libsluice_static ALL DEPENDS "${archive}")

# What programs that link the archive link besides.
set(private "-lspdlog -lfmt -lpcap -lmnl -lurcu-qsbr -lurcu-common -lzstd -llzma -lbz2 -lz")
if(SLUICE_HAVE_AF_XDP)
  string(APPEND private " -lbpf")
endif()
if(SLUICE_HAVE_CUDA)
  get_target_property(cudart CUDA::cudart_static IMPORTED_LOCATION)
  string(APPEND private " ${cudart} -lrt")
endif()
string(APPEND private " -lstdc++ -lm -ldl -pthread")
set(SLUICE_LIBS_PRIVATE "${private}")
file(RELATIVE_PATH SLUICE_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" SLUICE_PC_PREFIX "${SLUICE_PC_PREFIX}")
configure_file("${CMAKE_SOURCE_DIR}/packaging/sluice.pc.in" "${CMAKE_BINARY_DIR}/sluice.pc" @ONLY)
configure_file("${CMAKE_SOURCE_DIR}/packaging/sluice-config.cmake" "${CMAKE_BINARY_DIR}/sluice-config.cmake" COPYONLY)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/sluice-config-version.cmake" COMPATIBILITY SameMajorVersion)

set(sluice_package "${CMAKE_INSTALL_LIBDIR}/cmake/sluice")
foreach(component devel library)
  install(TARGETS libsluice LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component} NAMELINK_SKIP EXCLUDE_FROM_ALL)
  if(CMAKE_STRIP)
    install(CODE "execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-unneeded
      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libsluice.so.${PROJECT_VERSION}\" COMMAND_ERROR_IS_FATAL ANY)"
      COMPONENT ${component} EXCLUDE_FROM_ALL)
  endif()
endforeach()
foreach(component devel development)
  install(TARGETS libsluice LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component}
          NAMELINK_ONLY EXCLUDE_FROM_ALL)
  install(FILES "${archive}" DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component} EXCLUDE_FROM_ALL)
  if(CMAKE_STRIP)
    install(CODE "execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug
      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libsluice.a\" COMMAND_ERROR_IS_FATAL ANY)"
      COMPONENT ${component} EXCLUDE_FROM_ALL)
  endif()
  install(FILES "${CMAKE_SOURCE_DIR}/include/sluice/sluice.h" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sluice
          COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES "${CMAKE_BINARY_DIR}/sluice.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT ${component}
          EXCLUDE_FROM_ALL)
  install(FILES "${CMAKE_BINARY_DIR}/sluice-config.cmake" "${CMAKE_BINARY_DIR}/sluice-config-version.cmake"
          DESTINATION ${sluice_package} COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()
sluice_package_documents(library libsluice0 EXCLUDE_FROM_ALL)
sluice_package_documents(development libsluice-dev EXCLUDE_FROM_ALL)

add_custom_target(uninstall_devel COMMAND ${CMAKE_COMMAND} -DMANIFEST=${CMAKE_BINARY_DIR}/install_manifest_devel.txt
                  -P "${CMAKE_CURRENT_LIST_DIR}/Uninstall.cmake")
