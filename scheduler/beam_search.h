#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/ops.h"
#include "model/sampling_params.h"

namespace quire {

struct BeamSearchOptions {
  int32_t width = 2;         // beams that live at once, >= 1
  int32_t max_output = 1;    // tokens that a hypothesis may have, >= 1
  int32_t min_output = 0;    // tokens that it has at least before an ending id
  float length_penalty = 1;  // score = log-probability / (output tokens)^length_penalty, the ending id counted
  EarlyStopping early_stopping = EarlyStopping::kNo;
  std::vector<int32_t> ending_ids = {};  // a hypothesis ends with the first of them
  int32_t num_logprobs = 0;              // best ids to keep of each position beside the chosen one
};

// Chooses the beams of one request: knows tokens and log-probabilities, no sequences or blocks. Not thread-safe.
//
// Results are those of Hugging Face transformers' beam search (GenerationMixin._beam_search, 4.50 and later) without
// sampling. At each position all continuations of all live beams are ordered by the log-probability of the whole
// output, ties by the better beam, then by the lower id. Those among the best `width` that end are hypotheses, of which
// the best `width` are kept (ties: the earlier one). The best `width` that do not end are the next beams. At max_output
// everything ends. With `width` hypotheses the search is over
//   kYes:   at once,
//   kNo:    when the best beam, scored as if it ended here, is not better than the worst hypothesis,
//   kNever: the same, scored as if it kept its log-probability up to max_output if length_penalty > 0.
//
// Log-probabilities are of the raw logits; sums are in double. Memory: 32 bytes for each beam and position, and what
// num_logprobs asks for.
class BeamSearch {
 public:
  // A live beam: which one of the position before it continues, and with what.
  struct Beam {
    int32_t parent = 0;
    int32_t token_id = 0;
  };
  struct Token {
    int32_t token_id = 0;
    float logprob = 0;
    int32_t rank = 0;                          // by raw logit, 1-based
    absl::Span<const TokenLogprob> best = {};  // num_logprobs of its position, best first; lives with the search
  };
  struct Hypothesis {
    double score = 0;
    bool ended = false;  // by its last token; false: max_output is reached
    std::vector<Token> tokens;
  };

  explicit BeamSearch(BeamSearchOptions options);

  // So many of a position's best ids suffice for the choice: `width` that continue, and every ending one before them.
  static int32_t NumCandidates(int32_t width, absl::Span<const int32_t> ending_ids);

  // Live beams, 1 at first: the prompt. They are numbered from the best one.
  int32_t num_beams() const { return static_cast<int32_t>(beams_.size()); }

  // The best ids behind a live beam, best first, ties by id: at least NumCandidates or the whole vocabulary. Once a
  // position.
  void Offer(int32_t beam, absl::Span<const TokenLogprob> best);
  bool has_offer(int32_t beam) const { return beams_[beam].has_offer; }
  // All live beams have an offer.
  bool ready() const { return num_offers_ == num_beams(); }

  // REQUIRES: ready(), not done(). Goes on by a position; afterwards beams() are the live ones, none if done().
  void Advance();
  absl::Span<const Beam> beams() const { return next_; }
  bool done() const { return done_; }

  // The best `n` hypotheses, best first; fewer if the vocabulary has no more.
  std::vector<Hypothesis> Best(int32_t n) const;

 private:
  // The last token of some beam. Beams share what is before it.
  struct Node {
    int32_t before = -1;  // index of the node before; -1: the prompt
    int32_t token_id = 0;
    float logprob = 0;
    int32_t rank = 0;
    int32_t num_best = 0;
    int64_t best_begin = 0;  // into kept_
  };
  struct LiveBeam {
    int32_t node = -1;
    double logprob = 0;  // of its output
    bool has_offer = false;
    size_t offer_begin = 0, offer_end = 0;  // into offered_
  };
  struct Candidate {
    double logprob = 0;  // of the output with it
    int32_t beam = 0;
    int32_t token_id = 0;
    size_t offer = 0;  // index into offered_
  };
  struct Finished {
    double score = 0;
    bool ended = false;
    int32_t node = 0;
  };

  bool Ends(int32_t token_id) const;
  double Score(double logprob, int32_t length) const;
  void CollectCandidates();
  int32_t AddNode(const Candidate& candidate);
  void Finish(const Candidate& candidate);
  bool IsOver() const;

  const BeamSearchOptions options_;
  std::vector<Node> nodes_;
  std::vector<TokenLogprob> kept_;  // num_logprobs of each position and beam that goes on
  std::vector<LiveBeam> beams_;
  std::vector<Beam> next_;
  std::vector<Finished> finished_;  // best first, at most `width`
  int32_t num_output_ = 0;          // tokens of a live beam
  int32_t num_offers_ = 0;
  bool done_ = false;

  // Of the position in hand.
  std::vector<TokenLogprob> offered_;
  std::vector<Candidate> candidates_;
  std::vector<int64_t> kept_begin_;  // by beam; -1: not kept yet
};

}  // namespace quire
