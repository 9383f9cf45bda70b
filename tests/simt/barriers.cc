// Barriers of a block and the meetings of a warp's lanes.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "tests/simt/block.h"
#include "tests/simt/race.h"

namespace quire::simt {
namespace {

int LineOf(const Site& site) { return static_cast<int>(site.line()); }

// --- barriers

void ReleaseBarrier(Barrier& barrier, Lane* last) {
  ++stats().barriers;
  const int id = static_cast<int>(&barrier - g_block.barriers.data());
  const bool whole_block = barrier.count < 0 || barrier.count == static_cast<int>(g_block.lanes.size());
  Lane* waiting[1024];
  unsigned met[1024];
  int count = 0;
  for (Lane& lane : g_block.lanes) {
    if (lane.state == LaneState::kAtBarrier && lane.barrier == id) waiting[count++] = &lane;
  }
  for (int i = 0; i < count; ++i) {
    waiting[i]->result = barrier.accumulated;
    met[i] = waiting[i]->index;
  }
  if (last != nullptr) {
    last->result = barrier.accumulated;
    met[count] = last->index;
  }
  if (whole_block) {
    race::BlockBarrier(static_cast<unsigned>(g_block.lanes.size()));
  } else {
    race::Join(met, count + (last != nullptr ? 1 : 0));
  }
  barrier = {};
  MakeAllReady(waiting, count);
}

void CheckSameBarrier(const Barrier& barrier, int id, int count, core::Reduction reduction, const Site& site) {
  if (barrier.count != count || barrier.reduction != reduction) {
    ReportViolation("barrier-mismatch", "barrier %d: %s:%d comes with another count or kind than %s:%d", id,
                    site.file_name(), LineOf(site), barrier.site.file_name(), LineOf(barrier.site));
  }
  if (options().strict_sites && id == 0 && count < 0 && !SamePlace(barrier.site, site)) {
    ReportViolation("divergent-barrier", "lanes wait at different __syncthreads: %s:%d and %s:%d",
                    barrier.site.file_name(), LineOf(barrier.site), site.file_name(), LineOf(site));
  }
}

int ArriveAtBarrier(int id, int count, core::Reduction reduction, bool predicate, Site site) {
  Lane* lane = g_lane;
  Barrier& barrier = g_block.barriers[id];
  ++g_block.progress;
  lane->site = site;
  lane->barrier = id;
  if (barrier.arrived == 0) {
    barrier.site = site;
    barrier.count = count;
    barrier.reduction = reduction;
    barrier.accumulated = reduction == core::Reduction::kAnd ? 1 : 0;
  } else {
    CheckSameBarrier(barrier, id, count, reduction, site);
  }
  if (reduction == core::Reduction::kCount) barrier.accumulated += predicate;
  if (reduction == core::Reduction::kAnd) barrier.accumulated &= predicate;
  if (reduction == core::Reduction::kOr) barrier.accumulated |= predicate;
  ++barrier.arrived;
  if (barrier.arrived >= (count < 0 ? g_block.live : count)) {
    ReleaseBarrier(barrier, lane);
    MaybeYield();
  } else {
    lane->state = LaneState::kAtBarrier;
    Yield();
  }
  return lane->result;
}

// --- meetings of a warp

const char* NameOf(Collective collective) {
  static const char* const names[] = {"__syncwarp", "a shuffle", "a vote", "a reduction", "mma", "ldmatrix"};
  return names[static_cast<int>(collective)];
}

template <typename Function>
void ForEachArrived(Warp& warp, unsigned arrived, Function function) {
  for (int i = 0; i < 32; ++i) {
    if (((arrived >> i) & 1) != 0) function(*warp.lanes[i]);
  }
}

void FinishShuffle(Warp& warp, const Meeting& meeting) {
  ForEachArrived(warp, meeting.arrived, [&](Lane& lane) {
    const int source = lane.argument;
    if (source < 0 || source > 31 || ((meeting.arrived >> source) & 1) == 0) {
      ReportViolation("shuffle-from-absent-lane",
                      "%s:%d lane %d reads lane %d, which is outside the mask or has exited", meeting.site.file_name(),
                      LineOf(meeting.site), lane.in_warp, source);
      return;
    }
    std::memcpy(lane.out, warp.lanes[source]->in, static_cast<size_t>(meeting.variant));
  });
}

// Banks hit by the eight rows of each matrix: rows in different 16-byte groups of a 128-byte line do not conflict.
void CountBankConflicts(const Warp& warp, int matrices) {
  for (int m = 0; m < matrices; ++m) {
    int ways = 1, per_bank[8] = {};
    for (int r = 0; r < 8; ++r) {
      const void* row = warp.lanes[m * 8 + r]->in;
      bool seen = false;
      for (int before = 0; before < r; ++before) seen |= warp.lanes[m * 8 + before]->in == row;
      if (!seen) ways = std::max(ways, ++per_bank[(reinterpret_cast<uintptr_t>(row) >> 4) & 7]);
    }
    stats().ldmatrix += 1;
    stats().ldmatrix_ways += static_cast<uint64_t>(ways);
  }
}

void FinishLdMatrix(Warp& warp, const Meeting& meeting) {
  const int matrices = meeting.variant & 7;
  const bool transposed = (meeting.variant & 8) != 0;
  CountBankConflicts(warp, matrices);
  ForEachArrived(warp, meeting.arrived, [&](Lane& lane) {
    auto** rows = static_cast<const void**>(lane.out);
    for (int m = 0; m < matrices; ++m) {
      if (transposed) {
        for (int j = 0; j < 2; ++j) rows[2 * m + j] = warp.lanes[8 * m + 2 * (lane.in_warp % 4) + j]->in;
      } else {
        rows[m] = warp.lanes[8 * m + lane.in_warp / 4]->in;
      }
    }
  });
}

void FinishMeeting(Warp& warp, const Meeting& meeting) {
  ++stats().collectives;
  ++g_block.progress;
  switch (meeting.collective) {
    case Collective::kBarrier: {
      unsigned met[32];
      int count = 0;
      ForEachArrived(warp, meeting.arrived, [&](Lane& lane) { met[count++] = lane.index; });
      race::Join(met, count);
      break;
    }
    case Collective::kShuffle:
      FinishShuffle(warp, meeting);
      break;
    case Collective::kBallot: {
      unsigned ballot = 0;
      ForEachArrived(warp, meeting.arrived,
                     [&](Lane& lane) { ballot |= static_cast<unsigned>(lane.argument != 0) << lane.in_warp; });
      ForEachArrived(warp, meeting.arrived, [&](Lane& lane) { lane.result = static_cast<int>(ballot); });
      break;
    }
    case Collective::kGather:
      ForEachArrived(warp, meeting.arrived, [&](Lane& to) {
        ForEachArrived(warp, meeting.arrived, [&](Lane& from) {
          std::memcpy(static_cast<uint32_t*>(to.out) + from.in_warp, from.in, sizeof(uint32_t));
        });
        to.result = static_cast<int>(meeting.arrived);
      });
      break;
    case Collective::kMma:
      FinishMma(warp, static_cast<core::Mma>(meeting.variant));
      break;
    case Collective::kLdMatrix:
      FinishLdMatrix(warp, meeting);
      break;
  }
}

void CompleteMeeting(Warp& warp, int index, const Lane* last) {
  const Meeting meeting = warp.meetings[index];
  for (int i = index; i + 1 < warp.num_meetings; ++i) warp.meetings[i] = warp.meetings[i + 1];
  --warp.num_meetings;
  FinishMeeting(warp, meeting);
  Lane* waiting[32];
  int count = 0;
  ForEachArrived(warp, meeting.arrived, [&](Lane& lane) {
    if (&lane != last) waiting[count++] = &lane;
  });
  MakeAllReady(waiting, count);
}

// The meeting that the lane joins: a pending one of the same mask, or a new one.
int FindMeeting(Warp& warp, Collective collective, int variant, unsigned mask, const Site& site) {
  for (int i = 0; i < warp.num_meetings; ++i) {
    const Meeting& meeting = warp.meetings[i];
    if (meeting.mask == mask) return i;
    if ((meeting.mask & mask) != 0) {
      ReportViolation("mask-mismatch", "%s:%d mask %08x of %s overlaps a pending one, %08x of %s:%d", site.file_name(),
                      LineOf(site), mask, NameOf(collective), meeting.mask, meeting.site.file_name(),
                      LineOf(meeting.site));
      break;
    }
  }
  warp.meetings[warp.num_meetings] = {mask, 0, collective, variant, site};
  return warp.num_meetings++;
}

void Meet(Collective collective, int variant, unsigned mask, Site site) {
  Lane* lane = g_lane;
  Warp& warp = *lane->warp;
  lane->site = site;
  if (((mask >> lane->in_warp) & 1) == 0) {
    ReportViolation("lane-not-in-mask", "%s:%d mask %08x of %s lacks the calling lane %d", site.file_name(),
                    LineOf(site), mask, NameOf(collective), lane->in_warp);
  }
  const int index = FindMeeting(warp, collective, variant, mask, site);
  Meeting& meeting = warp.meetings[index];
  if (meeting.collective != collective || meeting.variant != variant) {
    ReportViolation("collective-mismatch", "lanes of one warp meet in %s (%s:%d) and %s (%s:%d)",
                    NameOf(meeting.collective), meeting.site.file_name(), LineOf(meeting.site), NameOf(collective),
                    site.file_name(), LineOf(site));
  } else if (options().strict_sites && !SamePlace(meeting.site, site)) {
    ReportViolation("divergent-collective", "lanes of one warp meet at %s:%d and %s:%d", meeting.site.file_name(),
                    LineOf(meeting.site), site.file_name(), LineOf(site));
  }
  meeting.arrived |= 1u << lane->in_warp;
  if (meeting.arrived == (mask & warp.live)) {
    CompleteMeeting(warp, index, lane);
    MaybeYield();
  } else {
    lane->state = LaneState::kInCollective;
    Yield();
  }
}

void RequireWholeWarp(const char* what, const Site& site) {
  if (g_lane->warp->live == 0xffffffffu) return;
  ReportViolation("partial-warp", "%s:%d %s needs 32 live lanes", site.file_name(), LineOf(site), what);
  throw std::runtime_error("partial warp");
}

}  // namespace

void CompleteWithout(Lane* lane) {
  ++g_block.progress;
  Warp& warp = *lane->warp;
  warp.live &= ~(1u << lane->in_warp);
  for (int i = 0; i < warp.num_meetings;) {
    const Meeting& meeting = warp.meetings[i];
    if (meeting.arrived != 0 && meeting.arrived == (meeting.mask & warp.live)) {
      if (meeting.collective == Collective::kMma || meeting.collective == Collective::kLdMatrix) {
        RequireWholeWarp(NameOf(meeting.collective), meeting.site);
      }
      CompleteMeeting(warp, i, nullptr);
    } else {
      ++i;
    }
  }
  for (Barrier& barrier : g_block.barriers) {
    if (barrier.arrived != 0 && barrier.count < 0 && barrier.arrived >= g_block.live - 1) {
      ReleaseBarrier(barrier, nullptr);
    }
  }
}

namespace core {

void BlockBarrier(int id, int count, Site site) { ArriveAtBarrier(id, count, Reduction::kNone, false, site); }
int BlockReduce(Reduction reduction, bool predicate, Site site) {
  return ArriveAtBarrier(0, -1, reduction, predicate, site);
}

void WarpBarrier(unsigned mask, Site site) { Meet(Collective::kBarrier, 0, mask, site); }

void Shuffle(unsigned mask, const void* value, int bytes, int source, void* out, Site site) {
  g_lane->in = value;
  g_lane->out = out;
  g_lane->argument = source;
  Meet(Collective::kShuffle, bytes, mask, site);
}

unsigned Ballot(unsigned mask, bool predicate, Site site) {
  Lane* lane = g_lane;
  lane->argument = predicate;
  Meet(Collective::kBallot, 0, mask, site);
  return static_cast<unsigned>(lane->result);
}

unsigned Gather(unsigned mask, const void* value, void* out, Site site) {
  Lane* lane = g_lane;
  lane->in = value;
  lane->out = out;
  Meet(Collective::kGather, 0, mask, site);
  return static_cast<unsigned>(lane->result);
}

void WarpMma(Mma kind, const uint32_t* a, const uint32_t* b, const float* c, float* d, Site site) {
  RequireWholeWarp("mma", site);
  const void* operands[] = {a, b, c};
  g_lane->in = operands;
  g_lane->out = d;
  Meet(Collective::kMma, static_cast<int>(kind), 0xffffffffu, site);
}

void LdMatrixRows(const void* mine, int matrices, bool transposed, const void** rows, Site site) {
  RequireWholeWarp("ldmatrix", site);
  g_lane->in = mine;
  g_lane->out = rows;
  if (g_lane->in_warp < 8 * matrices && reinterpret_cast<uintptr_t>(mine) % 16 != 0) {
    ReportViolation("ldmatrix-misaligned", "%s:%d row address is not a multiple of 16", site.file_name(), LineOf(site));
  }
  Meet(Collective::kLdMatrix, matrices | (transposed ? 8 : 0), 0xffffffffu, site);
}

}  // namespace core
}  // namespace quire::simt
