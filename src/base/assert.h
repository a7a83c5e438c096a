// Programmer's errors only: never user input, never packet content.
#pragma once

#include <cassert>

#define SLUICE_ASSERT(condition) assert(condition)
