#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/trace/trace_codec.h"
#include "scheduler/trace/trace_fields.h"
#include "scheduler/trace/trace_record.h"
#include "scheduler/trace/trace_recorder.h"

namespace quire {

// The bytes of a trace: 8 of kTraceMagic, then the header and the records, each with its length as varint before it.
inline constexpr absl::string_view kTraceMagic = "QUIRETR1";

// Where a trace's bytes go.
class TraceBytes {
 public:
  virtual ~TraceBytes() = default;
  enum class Answer : uint8_t { kTaken, kFull, kTooSlow };
  // All of `bytes`, or nothing. `last`: the end of the trace, for which there must be room: kMaxTraceEndBytes.
  virtual Answer Append(absl::string_view bytes, bool last) = 0;
};
inline constexpr int64_t kMaxTraceEndBytes = 64;

// Writes the records of a recorder. After the first that is not taken (no room, or a value that no trace can hold)
// nothing more is written, only counted: a trace has no holes. Used on one thread.
class TraceWriter : public TraceSink {
 public:
  // `out` outlives it. The permutation's images replace the ids of the header too.
  TraceWriter(const TraceHeader& header, const TokenPermutation& permutation, TraceBytes* out);

  void Take(const TraceRecord& record) override;
  // Writes the end: kStopped, or why records were lost. Nothing may follow.
  void Finish();

  bool losing() const { return losing_; }
  TraceEnd end() const { return end_.end; }  // why, when losing
  int64_t num_records() const { return num_records_; }
  int64_t num_bytes() const { return num_bytes_; }
  int64_t num_lost() const { return end_.lost_records; }
  // Of the first value that no trace can hold.
  const absl::Status& status() const { return status_; }

 private:
  template <typename Fields>
  void Write(bool last, Fields fields);
  void Lose(TraceEnd reason);

  TraceBytes* const out_;
  TraceState state_;
  std::string body_, framed_;
  absl::Status status_;
  bool losing_ = false;
  int64_t num_records_ = 0, num_bytes_ = 0;
  TraceRecord end_;
};

// Reads a trace. Nothing in it is believed: lengths, counts and ranges are checked, memory stays a small multiple of
// the bytes read. Errors are kDataLoss and name offset and field.
class TraceReader {
 public:
  // `bytes` outlive it.
  static absl::StatusOr<TraceReader> Open(absl::string_view bytes, const TraceLimits& limits = {});

  const TraceHeader& header() const { return header_; }
  // The next record, kEnd as the last one. kOutOfRange behind it; kDataLoss also where a trace is cut off.
  absl::Status Next(TraceRecord* record);
  // Of the record that Next gave last.
  int64_t offset() const { return offset_; }
  int64_t number() const { return number_; }  // from 1

 private:
  explicit TraceReader(absl::string_view bytes) : bytes_(bytes) {}
  absl::StatusOr<absl::string_view> Body();

  absl::string_view bytes_;
  int64_t next_ = 0, offset_ = 0, number_ = 0;
  bool ended_ = false;
  TraceState state_;
  TraceHeader header_;
};

}  // namespace quire
