#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "block_manager/block.h"
#include "scheduler/trace/trace_record.h"

namespace quire {

// Bytes of a trace, one function a kind of field, the same for writing, reading and printing, so that trace_fields.h
// describes each record once. Every field has a name and a range; the first that does not keep to it makes `status` an
// error that names field, value and limit (when reading, the offset too), and nothing after it counts.
//
//   varint  7 bits a byte, the lowest first, the highest bit: more follow
//   Range   value - min as varint
//   Signed  0, -1, 1, -2, ... as 0, 1, 2, 3, ...
//   Time    a duration since the latest Now: quarter nanoseconds, Signed, times 4, as varint; the two low bits 1 and 2:
//           infinite; 3: the whole seconds as Signed follow, then the rest of a second

// What a record leaves for the next one: both sides keep it.
struct TraceState {
  absl::Time now = absl::UnixEpoch();
  uint64_t handle = 0;
  int64_t step = 0;
  std::vector<TracePlan::Entry> sequences;  // of the latest plan
};

// Appends to a string. Allocates nothing beyond that.
class TraceEncoder {
 public:
  static constexpr bool kReads = false;

  TraceEncoder(TraceState* state, std::string* out) : state_(*state), out_(*out) {}

  template <typename T>
  void Range(const char* field, const T& value, int64_t min, int64_t max) {
    const auto v = static_cast<int64_t>(value);
    if (v < min || v > max) return FailRange(field, v, min, max);
    Varint(static_cast<uint64_t>(v) - static_cast<uint64_t>(min));
  }
  void Word(const char* field, uint64_t value);  // 8 bytes
  void Signed(const char* field, int64_t value) { Varint(ZigZag(value)), (void)field; }
  void Hash(const char* field, const BlockHash& hash);
  // IEEE, 4 or 8 bytes.
  void Real(const char* field, double value, double min, double max);
  void Real(const char* field, float value, float min, float max);
  void Duration(const char* field, absl::Duration value);
  void Time(const char* field, absl::Time value) { Duration(field, value - state_.now); }
  void Now(const char* field, absl::Time value);
  void Text(const char* field, const std::string& value, size_t max_bytes);
  template <typename T, typename Each>
  void List(const char* field, const std::vector<T>& values, int64_t max, Each each) {
    Range(field, values.size(), 0, max);
    for (const T& value : values) each(*this, value);
  }
  void Sequences(const char* field, const std::vector<TracePlan::Entry>& entries);

  void Fail(const char* field, absl::string_view what);
  const absl::Status& status() const { return status_; }
  TraceState& state() { return state_; }

 private:
  static uint64_t ZigZag(int64_t v) { return static_cast<uint64_t>(v) << 1 ^ static_cast<uint64_t>(v >> 63); }
  void Varint(uint64_t value);
  void FailRange(const char* field, int64_t value, int64_t min, int64_t max);

  TraceState& state_;
  std::string& out_;
  absl::Status status_;
};

// Reads what a TraceEncoder wrote, or anything else: nothing is believed. After a failure all fields read as nothing.
class TraceDecoder {
 public:
  static constexpr bool kReads = true;

  // `offset`: of `bytes` in the file, for messages.
  TraceDecoder(TraceState* state, absl::string_view bytes, int64_t offset)
      : state_(*state), bytes_(bytes), offset_(offset) {}

  template <typename T>
  void Range(const char* field, T& value, int64_t min, int64_t max) {
    const uint64_t v = Varint(field);
    const uint64_t width = static_cast<uint64_t>(max) - static_cast<uint64_t>(min);
    if (v > width) FailRange(field, v, min, max);
    value = static_cast<T>(status_.ok() ? static_cast<int64_t>(static_cast<uint64_t>(min) + v) : min);
  }
  void Word(const char* field, uint64_t& value);
  void Signed(const char* field, int64_t& value);
  void Hash(const char* field, BlockHash& hash);
  void Real(const char* field, double& value, double min, double max);
  void Real(const char* field, float& value, float min, float max);
  void Duration(const char* field, absl::Duration& value);
  void Time(const char* field, absl::Time& value);
  void Now(const char* field, absl::Time& value);
  void Text(const char* field, std::string& value, size_t max_bytes);
  // An element takes a byte at least, so a count never asks for more memory than a small multiple of the bytes left.
  template <typename T, typename Each>
  void List(const char* field, std::vector<T>& values, int64_t max, Each each) {
    int64_t count = 0;
    Range(field, count, 0, max);
    if (count > left()) FailRange(field, count, 0, left());
    values.clear();
    for (int64_t i = 0; i < count && status_.ok(); ++i) each(*this, values.emplace_back());
  }
  void Sequences(const char* field, std::vector<TracePlan::Entry>& entries);

  void Fail(const char* field, absl::string_view what);
  const absl::Status& status() const { return status_; }
  TraceState& state() { return state_; }
  int64_t left() const { return static_cast<int64_t>(bytes_.size() - position_); }
  // Fails unless everything was read.
  void End();

 private:
  static int64_t UnZigZag(uint64_t v) { return static_cast<int64_t>(v >> 1 ^ (~(v & 1) + 1)); }
  uint64_t Varint(const char* field);
  uint64_t Fixed(const char* field, int bytes);
  void FailRange(const char* field, uint64_t value, int64_t min, int64_t max);

  TraceState& state_;
  const absl::string_view bytes_;
  const int64_t offset_;
  size_t position_ = 0;
  absl::Status status_;
};

// The fields as names and text, lists with the index of each element: `plan.sequences[2].start`.
class TracePrinter {
 public:
  static constexpr bool kReads = false;
  using Fields = std::vector<std::pair<std::string, std::string>>;

  explicit TracePrinter(Fields* fields) : fields_(*fields) {}

  template <typename T>
  void Range(const char* field, const T& value, int64_t, int64_t) {
    Put(field, absl::StrCat(static_cast<int64_t>(value)));
  }
  void Word(const char* field, uint64_t value) { Put(field, absl::StrCat(value)); }
  void Signed(const char* field, int64_t value) { Put(field, absl::StrCat(value)); }
  void Hash(const char* field, const BlockHash& hash);
  void Real(const char* field, double value, double, double) { Put(field, absl::StrCat(value)); }
  void Duration(const char* field, absl::Duration value) { Put(field, absl::FormatDuration(value)); }
  void Time(const char* field, absl::Time value);
  void Now(const char* field, absl::Time value) { Time(field, value); }
  void Text(const char* field, const std::string& value, size_t) { Put(field, value); }
  template <typename T, typename Each>
  void List(const char* field, const std::vector<T>& values, int64_t, Each each) {
    Put(field, absl::StrCat(values.size()));
    const size_t outside = prefix_.size();
    for (size_t i = 0; i < values.size(); ++i) {
      absl::StrAppend(&prefix_, field, "[", i, "].");
      each(*this, values[i]);
      prefix_.resize(outside);
    }
  }
  void Sequences(const char* field, const std::vector<TracePlan::Entry>& entries);

  void Fail(const char*, absl::string_view) {}
  TraceState& state() { return state_; }

 private:
  void Put(const char* field, std::string value) { fields_.emplace_back(prefix_ + field, std::move(value)); }

  Fields& fields_;
  std::string prefix_;
  TraceState state_;
};

}  // namespace quire
