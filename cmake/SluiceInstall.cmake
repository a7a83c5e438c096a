# What is installed: the program without its debugging sections, its man page and completion for shells, all made by the
# program itself after it was linked. `uninstall` removes what the last installation from this build folder put there;
# `cpack` makes Debian packages: the program, the library and what is built with it, and one more with DPDK.
include(GNUInstallDirs)
include(SluicePackage)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME sluice)
# The same program under the name that Click's scripts call.
add_custom_command(TARGET sluice POST_BUILD
  COMMAND ${CMAKE_COMMAND} -E create_symlink sluice click WORKING_DIRECTORY $<TARGET_FILE_DIR:sluice>)
# The program of the benchmarks knows every command's options.
add_custom_command(TARGET sluice-bench POST_BUILD
  COMMAND ${CMAKE_COMMAND} -E make_directory "${share}"
  COMMAND sluice-bench reference man > "${share}/sluice.1"
  COMMAND gzip -9nf "${share}/sluice.1"
  COMMAND gzip -9nc "${CMAKE_SOURCE_DIR}/packaging/changelog" > "${share}/changelog.gz"
  COMMAND sluice-bench reference bash > "${share}/sluice.bash"
  COMMAND sluice-bench reference zsh > "${share}/_sluice"
  COMMAND sluice-bench reference fish > "${share}/sluice.fish"
  COMMAND ${CMAKE_COMMAND} -E echo ".so man1/sluice.1" > "${share}/sluice-bench.1"
  COMMAND gzip -9nf "${share}/sluice-bench.1"
  WORKING_DIRECTORY $<TARGET_FILE_DIR:sluice-bench>)

function(sluice_strip file component)
  if(CMAKE_STRIP)
    install(CODE "execute_process(COMMAND \"${CMAKE_STRIP}\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${file}\"
                                  COMMAND_ERROR_IS_FATAL ANY)" COMPONENT ${component})
  endif()
endfunction()
install(TARGETS sluice RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
sluice_strip(${CMAKE_INSTALL_BINDIR}/sluice sluice)
# What measures is a package of its own.
install(TARGETS sluice-bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT bench)
sluice_strip(${CMAKE_INSTALL_BINDIR}/sluice-bench bench)
install(FILES "${share}/sluice-bench.1.gz" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT bench)
# Completion is looked for under the name of the program.
install(FILES "${share}/sluice.bash" DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        RENAME sluice-bench COMPONENT bench)
sluice_package_documents(bench sluice-bench)
# What needs DPDK is a package of its own. The program looks for it in lib/sluice beside its bin, whatever the libraries'
# folder is here.
if(TARGET sluice_dpdk)
  install(TARGETS sluice_dpdk LIBRARY DESTINATION lib/sluice COMPONENT dpdk)
  sluice_strip(lib/sluice/libsluice_dpdk.so dpdk)
  sluice_package_documents(dpdk sluice-dpdk)
endif()
if(SLUICE_INSTALL_CLICK)
  file(CREATE_LINK sluice "${share}/click" SYMBOLIC)
  install(FILES "${share}/click" DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES "${share}/sluice.1.gz" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES "${share}/sluice.bash" DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME sluice)
# Debian's zsh looks for what packages bring in another place than for what was installed by hand.
install(CODE "set(zsh site-functions)
if(\"\${CMAKE_INSTALL_PREFIX}\" STREQUAL \"/usr\" AND EXISTS /etc/debian_version)
  set(zsh vendor-completions)
endif()
file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/zsh/\${zsh}\" TYPE FILE FILES \"${share}/_sluice\")")
install(FILES "${share}/sluice.fish" DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

install(FILES "${CMAKE_SOURCE_DIR}/packaging/copyright" "${share}/changelog.gz" DESTINATION ${CMAKE_INSTALL_DOCDIR})
set(etc "${CMAKE_SOURCE_DIR}/packaging/etc")
sluice_package_files(sluice /etc/sluice "${etc}/sluice.toml" "${etc}/edge.acl" "${etc}/routes.txt")
sluice_package_files(sluice /lib/systemd/system "${CMAKE_SOURCE_DIR}/packaging/sluice.service")
sluice_package_files(sluice /usr/share/doc/sluice/examples "${CMAKE_SOURCE_DIR}/packaging/grafana/sluice.json")

add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DMANIFEST=${CMAKE_BINARY_DIR}/install_manifest.txt
                  -P "${CMAKE_CURRENT_LIST_DIR}/Uninstall.cmake")

# What `cmake --install` without a component installs.
add_custom_target(installed DEPENDS sluice sluice-bench)
if(TARGET sluice_dpdk)
  add_dependencies(installed sluice_dpdk)
endif()
# What packages are made of.
add_custom_target(packaged DEPENDS installed)
if(TARGET libsluice)
  add_dependencies(packaged libsluice libsluice_static)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sluice)
set(CPACK_PACKAGE_CONTACT "The Sluice contributors <sluice@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "packet-processing data plane for CPUs and GPUs")
set(CPACK_PACKAGE_DESCRIPTION "One graph of network functions (access lists, routes, QoS) over captures,
with byte-identical results on CPUs and GPUs. Reads Click configurations,
iptables-save, nft and VPP rules, and MRT route dumps.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_RESOURCE_FILE_LICENSE "${CMAKE_SOURCE_DIR}/LICENSE")
set(CPACK_COMPONENTS_ALL sluice bench)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_SLUICE_PACKAGE_NAME sluice)
set(debian "${CMAKE_SOURCE_DIR}/packaging/debian")
set(CPACK_DEBIAN_SLUICE_PACKAGE_CONTROL_EXTRA "${debian}/conffiles;${debian}/postinst;${debian}/prerm;${debian}/postrm")
set(CPACK_COMPONENT_SLUICE_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
set(CPACK_DEBIAN_BENCH_PACKAGE_NAME sluice-bench)
set(CPACK_DEBIAN_BENCH_PACKAGE_DEPENDS "sluice (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_BENCH_DESCRIPTION "The benchmarks of sluice: rates with their machine, input and check.")
if(TARGET sluice_dpdk)
  list(APPEND CPACK_COMPONENTS_ALL dpdk)
  set(CPACK_DEBIAN_DPDK_PACKAGE_NAME sluice-dpdk)
  # Of DPDK's plugins one is always needed; the drivers are a choice.
  set(CPACK_DEBIAN_DPDK_PACKAGE_DEPENDS "sluice (= ${PROJECT_VERSION}), librte-meta-mempool")
  set(CPACK_DEBIAN_DPDK_PACKAGE_RECOMMENDS librte-meta-net)
  set(CPACK_COMPONENT_DPDK_DESCRIPTION "DPDK ports for sluice.")
endif()
if(TARGET libsluice)
  list(APPEND CPACK_COMPONENTS_ALL library development)
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libsluice0)
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
  # Which package brings the library, for dpkg-shlibdeps of programs that link it.
  file(CONFIGURE OUTPUT "${share}/shlibs" CONTENT "libsluice 0 libsluice0 (>= ${PROJECT_VERSION})\n")
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA "${debian}/triggers;${share}/shlibs")
  set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "The library of sluice: access lists, routes, devices and\npacket graphs in other programs.")
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libsluice-dev)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libsluice0 (= ${PROJECT_VERSION})")
  set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "What programs are built with that use libsluice: header,\narchive, pkg-config, CMake.")
endif()
include(CPack)
