#pragma once

#include <cstdio>
#include <cstdlib>

// Ends the process with place and condition: for broken invariants of our own, never for bad input.
#define QUIRE_CHECK(condition)        \
  ((condition) ? static_cast<void>(0) \
               : (std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition), std::abort()))

// The same on hot paths: compiled out of release builds.
#ifdef NDEBUG
#define QUIRE_DCHECK(condition) static_cast<void>(sizeof(!(condition)))
#else
#define QUIRE_DCHECK(condition) QUIRE_CHECK(condition)
#endif
