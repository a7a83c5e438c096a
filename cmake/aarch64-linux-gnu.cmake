# Cross compilation for 64-bit Arm by Debian's g++-aarch64-linux-gnu (preset aarch64), with the libraries that
# scripts/sysroot.py lays, and programs run by qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(SLUICE_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build/sysroot-aarch64" CACHE PATH "Libraries and headers of the other machine")
get_filename_component(CMAKE_SYSROOT "${SLUICE_SYSROOT}" ABSOLUTE)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# The C++ library's headers come with the compiler and not with the libraries.
set(CMAKE_FIND_ROOT_PATH "${CMAKE_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR} "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")
# The man page and the completions are what the program itself says: to build is to run it.
find_program(SLUICE_QEMU NAMES qemu-aarch64 qemu-aarch64-static REQUIRED)
set(CMAKE_CROSSCOMPILING_EMULATOR "${SLUICE_QEMU};-L;${CMAKE_SYSROOT}")
