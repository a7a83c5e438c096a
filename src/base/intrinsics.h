// host only
// The x86 intrinsics, where there are any, for a file that has kernels of them. Included last.
#pragma once

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12's own intrinsics start from a deliberately undefined register, and GCC warns of it, in whatever function they
// are used: for the rest of the file.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#endif
