#include "scheduler/beam_search.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "kernels/base/check.h"

namespace quire {

BeamSearch::BeamSearch(BeamSearchOptions options) : options_(std::move(options)), beams_(1) {
  QUIRE_CHECK(options_.width >= 1 && options_.max_output >= 1);
}

int32_t BeamSearch::NumCandidates(int32_t width, absl::Span<const int32_t> ending_ids) {
  return width + static_cast<int32_t>(ending_ids.size());
}

void BeamSearch::Offer(int32_t beam, absl::Span<const TokenLogprob> best) {
  LiveBeam& live = beams_[beam];
  QUIRE_CHECK(!live.has_offer);
  live.has_offer = true;
  live.offer_begin = offered_.size();
  offered_.insert(offered_.end(), best.begin(), best.end());
  live.offer_end = offered_.size();
  ++num_offers_;
}

bool BeamSearch::Ends(int32_t token_id) const {
  return std::find(options_.ending_ids.begin(), options_.ending_ids.end(), token_id) != options_.ending_ids.end();
}

double BeamSearch::Score(double logprob, int32_t length) const {
  return logprob / std::pow(length, options_.length_penalty);
}

void BeamSearch::CollectCandidates() {
  candidates_.clear();
  const bool may_end = num_output_ >= options_.min_output;
  for (int32_t b = 0; b < num_beams(); ++b) {
    for (size_t i = beams_[b].offer_begin; i < beams_[b].offer_end; ++i) {
      const TokenLogprob& offer = offered_[i];
      if (std::isinf(offer.logprob) || (!may_end && Ends(offer.token_id))) continue;
      candidates_.push_back({beams_[b].logprob + offer.logprob, b, offer.token_id, i});
    }
  }
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    // Offers of a beam come by id where they are equal.
    return std::make_tuple(-a.logprob, a.beam, a.offer) < std::make_tuple(-b.logprob, b.beam, b.offer);
  });
}

void BeamSearch::Advance() {
  QUIRE_CHECK(ready() && !done_);
  CollectCandidates();
  kept_begin_.assign(beams_.size(), -1);
  ++num_output_;
  next_.clear();
  std::vector<LiveBeam> live;
  const bool all_end = num_output_ == options_.max_output;
  for (int32_t place = 0; place < static_cast<int32_t>(candidates_.size()); ++place) {
    const Candidate& candidate = candidates_[place];
    if (all_end || Ends(candidate.token_id)) {
      if (place < options_.width) Finish(candidate);
    } else if (static_cast<int32_t>(live.size()) < options_.width) {
      live.push_back({.node = AddNode(candidate), .logprob = candidate.logprob});
      next_.push_back({candidate.beam, candidate.token_id});
    } else if (place >= options_.width) {
      break;
    }
  }
  beams_ = std::move(live);
  offered_.clear();
  num_offers_ = 0;
  done_ = IsOver();
  if (!done_) return;
  beams_.clear();
  next_.clear();
}

bool BeamSearch::IsOver() const {
  if (beams_.empty()) return true;
  if (static_cast<int32_t>(finished_.size()) < options_.width) return false;
  if (options_.early_stopping == EarlyStopping::kYes) return true;
  const bool may_improve = options_.early_stopping == EarlyStopping::kNever && options_.length_penalty > 0;
  return Score(beams_[0].logprob, may_improve ? options_.max_output : num_output_) <= finished_.back().score;
}

int32_t BeamSearch::AddNode(const Candidate& candidate) {
  const LiveBeam& beam = beams_[candidate.beam];
  const auto num_offered = static_cast<int32_t>(beam.offer_end - beam.offer_begin);
  const int32_t num_best = std::min(options_.num_logprobs, num_offered);
  int64_t& kept_begin = kept_begin_[candidate.beam];
  if (kept_begin < 0) {
    kept_begin = static_cast<int64_t>(kept_.size());
    const auto begin = offered_.begin() + static_cast<ptrdiff_t>(beam.offer_begin);
    kept_.insert(kept_.end(), begin, begin + num_best);
  }
  nodes_.push_back({.before = beam.node,
                    .token_id = candidate.token_id,
                    .logprob = offered_[candidate.offer].logprob,
                    .rank = static_cast<int32_t>(candidate.offer - beam.offer_begin) + 1,
                    .num_best = num_best,
                    .best_begin = kept_begin});
  return static_cast<int32_t>(nodes_.size()) - 1;
}

void BeamSearch::Finish(const Candidate& candidate) {
  const double score = Score(candidate.logprob, num_output_);
  const auto place =
      std::find_if(finished_.begin(), finished_.end(), [score](const Finished& other) { return other.score < score; });
  if (place - finished_.begin() == options_.width) return;
  finished_.insert(place, {score, Ends(candidate.token_id), AddNode(candidate)});
  if (static_cast<int32_t>(finished_.size()) > options_.width) finished_.pop_back();
}

std::vector<BeamSearch::Hypothesis> BeamSearch::Best(int32_t n) const {
  std::vector<Hypothesis> best;
  for (const Finished& finished : finished_) {
    if (static_cast<int32_t>(best.size()) == n) break;
    Hypothesis hypothesis{finished.score, finished.ended, {}};
    for (int32_t i = finished.node; i >= 0; i = nodes_[i].before) {
      const Node& node = nodes_[i];
      hypothesis.tokens.push_back(
          {node.token_id, node.logprob, node.rank, absl::MakeConstSpan(kept_).subspan(node.best_begin, node.num_best)});
    }
    std::reverse(hypothesis.tokens.begin(), hypothesis.tokens.end());
    best.push_back(std::move(hypothesis));
  }
  return best;
}

}  // namespace quire
