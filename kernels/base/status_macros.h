#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function with the status of `expression` unless it is OK.
#define QUIRE_RETURN_IF_ERROR(expression)                                 \
  do {                                                                    \
    if (absl::Status quire_status_ = (expression); !quire_status_.ok()) { \
      return quire_status_;                                               \
    }                                                                     \
  } while (false)

// Evaluates an absl::StatusOr<T>; returns its status on error, else moves the value into `left`, which may declare a
// variable: QUIRE_ASSIGN_OR_RETURN(auto model, LoadModel(path));
#define QUIRE_ASSIGN_OR_RETURN(left, expression) \
  QUIRE_ASSIGN_OR_RETURN_IMPL(QUIRE_CONCAT(quire_status_or_, __LINE__), left, expression)
#define QUIRE_ASSIGN_OR_RETURN_IMPL(temporary, left, expression) \
  auto temporary = (expression);                                 \
  if (!temporary.ok()) return std::move(temporary).status();     \
  left = *std::move(temporary)
#define QUIRE_CONCAT(a, b) QUIRE_CONCAT_IMPL(a, b)
#define QUIRE_CONCAT_IMPL(a, b) a##b
