#include "scheduler/trace/trace_codec.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/str_format.h"

namespace quire {
namespace {

const absl::Duration kTick = absl::Nanoseconds(1) / 4;  // what absl::Time resolves
constexpr int64_t kTicksPerSecond = 4'000'000'000;
constexpr int64_t kNearSeconds = int64_t{1} << 28;  // as ticks, Signed and times 4 they fit 64 bits
enum DurationKind : uint64_t { kNear, kInfinite, kMinusInfinite, kFar };

struct Ticks {
  int64_t seconds = 0, rest = 0;  // of equal sign
};

Ticks Split(absl::Duration d) {
  absl::Duration rest, none;
  const int64_t seconds = absl::IDivDuration(d, absl::Seconds(1), &rest);
  return {seconds, absl::IDivDuration(rest, kTick, &none)};
}

// How a plan's sequences follow from those of the plan before. In the two low bits of a varint; the rest is a number.
enum SequenceOp : uint64_t {
  kDone,
  kGoOn,  // the next n go on with one token each, which is sampled
  kSkip,  // the next n are not in this plan
  kOther,
};

bool GoesOn(const TracePlan::Entry& before, const TracePlan::Entry& now) {
  return before.sequence == now.sequence && now.start == int64_t{before.start} + before.num_tokens &&
         now.num_tokens == 1 && now.sampled && now.num_scores == 0;
}

template <typename Ar, typename Entry>
void EntryFields(Ar& ar, Entry& entry) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  ar.Range("index", entry.sequence.index, 0, 65535);
  ar.Range("start", entry.start, 0, kMost);
  ar.Range("num_tokens", entry.num_tokens, 1, kMost);
  ar.Range("sampled", entry.sampled, 0, 1);
  ar.Range("num_scores", entry.num_scores, 0, kMost);
}

}  // namespace

// --- writing

void TraceEncoder::Varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
  out_.push_back(static_cast<char>(value));
}

void TraceEncoder::Word(const char*, uint64_t value) {
  for (int i = 0; i < 8; ++i) out_.push_back(static_cast<char>(value >> (8 * i)));
}

void TraceEncoder::Hash(const char* field, const BlockHash& hash) {
  Word(field, hash.low);
  Word(field, hash.high);
}

void TraceEncoder::Real(const char* field, double value, double min, double max) {
  if (!(value >= min && value <= max)) Fail(field, absl::StrFormat("is %g, allowed are %g to %g", value, min, max));
  Word(field, std::bit_cast<uint64_t>(value));
}

void TraceEncoder::Real(const char* field, float value, float min, float max) {
  if (!(value >= min && value <= max)) Fail(field, absl::StrFormat("is %g, allowed are %g to %g", value, min, max));
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int i = 0; i < 4; ++i) out_.push_back(static_cast<char>(bits >> (8 * i)));
}

void TraceEncoder::Duration(const char*, absl::Duration value) {
  if (value == absl::InfiniteDuration()) return Varint(kInfinite);
  if (value == -absl::InfiniteDuration()) return Varint(kMinusInfinite);
  const Ticks ticks = Split(value);
  if (ticks.seconds > -kNearSeconds && ticks.seconds < kNearSeconds) {
    return Varint(ZigZag(ticks.seconds * kTicksPerSecond + ticks.rest) << 2 | kNear);
  }
  Varint(kFar);
  Varint(ZigZag(ticks.seconds));
  Varint(ZigZag(ticks.rest));
}

void TraceEncoder::Now(const char* field, absl::Time value) {
  if (value == absl::InfiniteFuture() || value == absl::InfinitePast()) return Fail(field, "is infinite");
  Time(field, value);
  state_.now = value;
}

void TraceEncoder::Text(const char* field, const std::string& value, size_t max_bytes) {
  Range(field, value.size(), 0, static_cast<int64_t>(max_bytes));
  out_.append(value);
}

void TraceEncoder::Sequences(const char*, const std::vector<TracePlan::Entry>& entries) {
  const std::vector<TracePlan::Entry>& before = state_.sequences;
  size_t next = 0, run = 0;
  uint64_t request = 0;
  const auto end_run = [&] {
    if (run > 0) Varint(run << 2 | kGoOn);
    run = 0;
  };
  for (const TracePlan::Entry& entry : entries) {
    const auto at = std::find_if(before.begin() + static_cast<int64_t>(next), before.end(),
                                 [&](const TracePlan::Entry& b) { return GoesOn(b, entry); });
    const auto found = static_cast<size_t>(at - before.begin());
    if (at != before.end()) {
      if (found > next) {
        end_run();
        Varint((found - next) << 2 | kSkip);
      }
      ++run;
      next = found + 1;
    } else {
      end_run();
      Varint(kOther);
      Signed("request", static_cast<int64_t>(entry.sequence.request - request));
      EntryFields(*this, entry);
    }
    request = entry.sequence.request;
  }
  end_run();
  Varint(kDone);
  state_.sequences.assign(entries.begin(), entries.end());
}

void TraceEncoder::Fail(const char* field, absl::string_view what) {
  if (status_.ok()) status_ = absl::OutOfRangeError(absl::StrFormat("schedule trace: %s %s", field, what));
}

void TraceEncoder::FailRange(const char* field, int64_t value, int64_t min, int64_t max) {
  Fail(field, absl::StrFormat("is %d, a trace holds %d to %d", value, min, max));
}

// --- reading

uint64_t TraceDecoder::Varint(const char* field) {
  uint64_t value = 0;
  for (int shift = 0; status_.ok(); shift += 7) {
    if (position_ == bytes_.size()) {
      Fail(field, "is cut off");
      break;
    }
    const auto byte = static_cast<uint8_t>(bytes_[position_++]);
    if (shift == 63 && byte > 1) {
      Fail(field, "has more than 64 bits");
      break;
    }
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return 0;
}

uint64_t TraceDecoder::Fixed(const char* field, int bytes) {
  if (!status_.ok()) return 0;
  if (left() < bytes) {
    Fail(field, "is cut off");
    return 0;
  }
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(bytes_[position_++])} << (8 * i);
  return value;
}

void TraceDecoder::Word(const char* field, uint64_t& value) { value = Fixed(field, 8); }

void TraceDecoder::Signed(const char* field, int64_t& value) { value = UnZigZag(Varint(field)); }

void TraceDecoder::Hash(const char* field, BlockHash& hash) {
  Word(field, hash.low);
  Word(field, hash.high);
}

void TraceDecoder::Real(const char* field, double& value, double min, double max) {
  value = std::bit_cast<double>(Fixed(field, 8));
  if (!(value >= min && value <= max)) {
    Fail(field, absl::StrFormat("is %g, allowed are %g to %g", value, min, max));
    value = min;
  }
}

void TraceDecoder::Real(const char* field, float& value, float min, float max) {
  value = std::bit_cast<float>(static_cast<uint32_t>(Fixed(field, 4)));
  if (!(value >= min && value <= max)) {
    Fail(field, absl::StrFormat("is %g, allowed are %g to %g", value, min, max));
    value = min;
  }
}

void TraceDecoder::Duration(const char* field, absl::Duration& value) {
  const uint64_t word = Varint(field);
  const auto kind = static_cast<DurationKind>(word & 3);
  value = absl::ZeroDuration();
  if (kind == kInfinite) value = absl::InfiniteDuration();
  if (kind == kMinusInfinite) value = -absl::InfiniteDuration();
  if (kind == kNear) {
    const int64_t ticks = UnZigZag(word >> 2);
    value = absl::Seconds(ticks / kTicksPerSecond) + kTick * (ticks % kTicksPerSecond);
  }
  if (kind == kFar) {
    const int64_t seconds = UnZigZag(Varint(field)), rest = UnZigZag(Varint(field));
    if (rest <= -kTicksPerSecond || rest >= kTicksPerSecond) return Fail(field, "has more than a second as its rest");
    value = absl::Seconds(seconds) + kTick * rest;
  }
}

void TraceDecoder::Time(const char* field, absl::Time& value) {
  absl::Duration since;
  Duration(field, since);
  value = state_.now + since;
}

void TraceDecoder::Now(const char* field, absl::Time& value) {
  Time(field, value);
  if (value == absl::InfiniteFuture() || value == absl::InfinitePast()) {
    Fail(field, "is infinite");
    value = state_.now;
  }
  state_.now = value;
}

void TraceDecoder::Text(const char* field, std::string& value, size_t max_bytes) {
  int64_t size = 0;
  Range(field, size, 0, static_cast<int64_t>(max_bytes));
  if (size > left()) Fail(field, "is cut off");
  value.clear();
  if (!status_.ok()) return;
  value = std::string(bytes_.substr(position_, size));
  position_ += size;
}

void TraceDecoder::Sequences(const char* field, std::vector<TracePlan::Entry>& entries) {
  const std::vector<TracePlan::Entry>& before = state_.sequences;
  entries.clear();
  size_t next = 0;
  uint64_t request = 0;
  while (status_.ok()) {
    const uint64_t word = Varint(field);
    const uint64_t n = word >> 2;
    const auto op = static_cast<SequenceOp>(word & 3);
    if (op == kDone) break;
    if (op == kOther) {
      int64_t delta = 0;
      Signed("request", delta);
      TracePlan::Entry& entry = entries.emplace_back();
      entry.sequence.request = request + static_cast<uint64_t>(delta);
      EntryFields(*this, entry);
      request = entry.sequence.request;
      continue;
    }
    if (n > before.size() - next) {
      Fail(field, absl::StrFormat("go on with %d of %d sequences", n, before.size() - next));
      break;
    }
    for (uint64_t i = 0; i < n; ++i, ++next) {
      if (op == kSkip) continue;
      const TracePlan::Entry& last = before[next];
      if (last.start > std::numeric_limits<int32_t>::max() - last.num_tokens) {
        Fail(field, "go beyond the last position");
        break;
      }
      entries.push_back({last.sequence, last.start + last.num_tokens, 1, true, 0});
      request = last.sequence.request;
    }
  }
  state_.sequences = entries;
}

void TraceDecoder::End() {
  if (left() > 0) Fail("the record", absl::StrFormat("has %d bytes too many", left()));
}

void TraceDecoder::Fail(const char* field, absl::string_view what) {
  if (!status_.ok()) return;
  status_ = absl::DataLossError(
      absl::StrFormat("schedule trace, byte %d: %s %s", offset_ + static_cast<int64_t>(position_), field, what));
}

void TraceDecoder::FailRange(const char* field, uint64_t value, int64_t min, int64_t max) {
  Fail(field, absl::StrFormat("is out of range: %d above the least, allowed are %d to %d", value, min, max));
}

// --- printing

void TracePrinter::Hash(const char* field, const BlockHash& hash) {
  Put(field, absl::StrFormat("%016x%016x", hash.high, hash.low));
}

void TracePrinter::Time(const char* field, absl::Time value) {
  Put(field, absl::FormatTime(absl::RFC3339_full, value, absl::UTCTimeZone()));
}

void TracePrinter::Sequences(const char* field, const std::vector<TracePlan::Entry>& entries) {
  List(field, entries, 0, [](TracePrinter& ar, const TracePlan::Entry& entry) {
    ar.Put("request", absl::StrCat(entry.sequence.request));
    EntryFields(ar, entry);
  });
}

}  // namespace quire
