#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace quire {

// Where one sequence stands in what its output may be (structured output). The engine keeps one for each sequence; what
// may be written is its maker's business (model/constraint/token_constraint.h).
//
// What may follow is known at any time: Accept finds it out, and everything else only reads it.
//
// One thread at a time; those of different sequences may be on different threads.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Stands where this one does and goes on by itself.
  virtual std::unique_ptr<TokenConstraint> Clone() const = 0;

  // Takes a token that may follow. kInvalidArgument for one that may not, kResourceExhausted naming a limit where what
  // follows is too expensive to find out, kFailedPrecondition where the text is not complete and no token can continue
  // it: of no use afterwards.
  virtual absl::Status Accept(int32_t token_id) = 0;

  virtual int32_t vocab_size() const = 0;
  // How many tokens may follow. 0: the text is complete, and nothing may come behind it.
  virtual int32_t num_allowed() const = 0;
  // The one that may follow. REQUIRES: num_allowed() == 1.
  virtual int32_t only_token() const = 0;
  // Sets bit i % 32 of words[i / 32] where token i may follow, clears all others. words: (vocab_size() + 31) / 32.
  virtual void FillMask(absl::Span<uint32_t> words) const = 0;
};

}  // namespace quire
