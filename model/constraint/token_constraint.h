#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "model/constraint/constraint.h"
#include "model/token_constraint.h"

namespace quire::constraint {

// Where a text under `constraint` begins, as the engine takes it: each sequence gets a clone. What may come first,
// inside reasoning and first behind it, and what is forced there, has been found out, so that the engine finds it in
// the constraint's cache. After an end token nothing may follow. Errors as of TokenConstraint::Accept, also for what
// would come up behind reasoning only.
absl::StatusOr<std::shared_ptr<const TokenConstraint>> MakeTokenConstraint(
    std::shared_ptr<const Constraint> constraint);

}  // namespace quire::constraint
