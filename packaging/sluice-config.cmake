# find_package(sluice): the target sluice::sluice.
if(NOT TARGET sluice::sluice)
  # <prefix>/<libdir>/cmake/sluice
  get_filename_component(sluice_libdir "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
  find_path(sluice_include sluice/sluice.h HINTS "${sluice_libdir}/../include" "${sluice_libdir}/../../include" NO_CACHE
            NO_DEFAULT_PATH)
  if(NOT sluice_include)
    set(sluice_FOUND FALSE)
    set(sluice_NOT_FOUND_MESSAGE "no sluice/sluice.h beside ${sluice_libdir}")
    return()
  endif()
  add_library(sluice::sluice SHARED IMPORTED)
  set_target_properties(sluice::sluice PROPERTIES IMPORTED_LOCATION "${sluice_libdir}/libsluice.so.0" IMPORTED_SONAME libsluice.so.0
    INTERFACE_INCLUDE_DIRECTORIES "${sluice_include}")
endif()
