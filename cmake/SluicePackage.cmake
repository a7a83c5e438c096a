# What packages have besides what an installation by hand has.
include(GNUInstallDirs)
set(share "${CMAKE_BINARY_DIR}/share")
file(MAKE_DIRECTORY "${share}")

# What only packages bring: the unit names /usr/bin/sluice, and what an operator has written in /etc stays his.
function(sluice_package_files component folder)
  list(JOIN ARGN "\" \"" files)
  install(CODE "if(\"\${CMAKE_INSTALL_PREFIX}\" STREQUAL \"/usr\" AND NOT \"\$ENV{DESTDIR}\" STREQUAL \"\")
  file(INSTALL DESTINATION ${folder} TYPE FILE FILES \"${files}\")
endif()" COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()
# What every package has; that of `sluice` has it from each installation.
function(sluice_package_documents component package)
  install(FILES "${CMAKE_SOURCE_DIR}/packaging/copyright" "${share}/changelog.gz"
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component} ${ARGN})
  set(overrides "${CMAKE_SOURCE_DIR}/packaging/debian/${package}.lintian-overrides")
  if(EXISTS "${overrides}")
    file(COPY_FILE "${overrides}" "${share}/${package}" ONLY_IF_DIFFERENT)
    sluice_package_files(${component} /usr/share/lintian/overrides "${share}/${package}")
  endif()
endfunction()
