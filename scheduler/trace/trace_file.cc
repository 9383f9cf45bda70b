#include "scheduler/trace/trace_file.h"

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"

namespace quire {
namespace {

constexpr int kMaxLengthBytes = 5;

}  // namespace

TraceWriter::TraceWriter(const TraceHeader& header, const TokenPermutation& permutation, TraceBytes* out) : out_(out) {
  framed_ = std::string(kTraceMagic);
  TraceHeader images = header;
  for (int32_t& id : images.limits.eos_token_ids) id = permutation(id);
  Write(false, [&](TraceEncoder& ar) { HeaderFields(ar, images, TraceLimits()); });
}

template <typename Fields>
void TraceWriter::Write(bool last, Fields fields) {
  body_.clear();
  TraceEncoder ar(&state_, &body_);
  fields(ar);
  if (!ar.status().ok()) {
    status_ = ar.status();
    return Lose(TraceEnd::kUnwritten);
  }
  TraceState none;
  TraceEncoder length(&none, &framed_);
  length.Range("length", body_.size(), 0, int64_t{1} << 32);
  framed_.append(body_);
  const TraceBytes::Answer answer = out_->Append(framed_, last);
  const auto bytes = static_cast<int64_t>(framed_.size());
  framed_.clear();
  if (answer != TraceBytes::Answer::kTaken) {
    return Lose(answer == TraceBytes::Answer::kFull ? TraceEnd::kFull : TraceEnd::kTooSlow);
  }
  num_bytes_ += bytes;
}

void TraceWriter::Lose(TraceEnd reason) {
  if (!losing_) end_.end = reason;
  losing_ = true;
  ++end_.lost_records;
}

void TraceWriter::Take(const TraceRecord& record) {
  if (losing_) {
    ++end_.lost_records;
    return;
  }
  Write(false, [&](TraceEncoder& ar) { RecordFields(ar, record); });
  num_records_ += !losing_;
}

void TraceWriter::Finish() {
  end_.call = TraceCall::kEnd;
  framed_.clear();
  Write(true, [this](TraceEncoder& ar) { RecordFields(ar, end_); });
}

absl::StatusOr<TraceReader> TraceReader::Open(absl::string_view bytes, const TraceLimits& limits) {
  if (bytes.substr(0, kTraceMagic.size()) != kTraceMagic) {
    return absl::DataLossError(absl::StrFormat("schedule trace, byte 0: it does not begin with %s", kTraceMagic));
  }
  TraceReader reader(bytes);
  reader.next_ = static_cast<int64_t>(kTraceMagic.size());
  QUIRE_ASSIGN_OR_RETURN(const absl::string_view body, reader.Body());
  TraceDecoder ar(&reader.state_, body, reader.next_ - static_cast<int64_t>(body.size()));
  HeaderFields(ar, reader.header_, limits);
  ar.End();
  QUIRE_RETURN_IF_ERROR(ar.status());
  return reader;
}

absl::StatusOr<absl::string_view> TraceReader::Body() {
  offset_ = next_;
  TraceState none;
  const absl::string_view rest = bytes_.substr(next_);
  TraceDecoder ar(&none, rest.substr(0, kMaxLengthBytes), next_);
  int64_t length = 0;
  ar.Range("the length of a record", length, 0, int64_t{1} << 32);
  QUIRE_RETURN_IF_ERROR(ar.status());
  const auto begin = static_cast<int64_t>(std::min(rest.size(), size_t{kMaxLengthBytes})) - ar.left();
  const auto left = static_cast<int64_t>(rest.size()) - begin;
  if (length > left) {
    return absl::DataLossError(absl::StrFormat("schedule trace, byte %d: a record of %d bytes is cut off after %d",
                                               next_ + begin, length, left));
  }
  next_ += begin + length;
  return rest.substr(begin, length);
}

absl::Status TraceReader::Next(TraceRecord* record) {
  if (ended_) return absl::OutOfRangeError("the trace has ended");
  QUIRE_ASSIGN_OR_RETURN(const absl::string_view body, Body());
  *record = TraceRecord();
  TraceDecoder ar(&state_, body, next_ - static_cast<int64_t>(body.size()));
  RecordFields(ar, *record);
  ar.End();
  QUIRE_RETURN_IF_ERROR(ar.status());
  ++number_;
  ended_ = record->call == TraceCall::kEnd;
  if (ended_ && next_ != static_cast<int64_t>(bytes_.size())) {
    return absl::DataLossError(absl::StrFormat("schedule trace, byte %d: bytes follow on the end", next_));
  }
  return absl::OkStatus();
}

}  // namespace quire
