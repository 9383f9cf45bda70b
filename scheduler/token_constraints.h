#pragma once

#include <cstdint>

#include "model/step_result.h"
#include "scheduler/schedule_plan.h"

// Structured output, around a step: who runs a plan calls these before and after, on the engine's thread. The scheduler
// knows of it only what a StepResult says, so a replay needs no constraints.
namespace quire {

// Points allowed_mask of the samples whose sequences have a constraint to what may follow, in plan->masks. Where the
// text can only go on with ids that min_tokens bans, the ban is lifted: the text comes first. In steady state nothing
// is allocated.
void FillMasks(SchedulePlan* plan);

// The constraints of `plan` take what was sampled; fills result->constrained and result->forced. `append_forced`:
// tokens are appended without sampling while only one may follow, unless their log-probabilities are wanted.
void AdvanceConstraints(const SchedulePlan& plan, bool append_forced, StepResult* result);

}  // namespace quire
