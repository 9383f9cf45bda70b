#include "tests/testing/trace_input.h"

#include "absl/strings/string_view.h"
#include "scheduler/trace/policy_comparison.h"
#include "scheduler/trace/replay.h"
#include "scheduler/trace/trace_codec.h"
#include "scheduler/trace/workload.h"

namespace quire::testing {

int64_t UseAsTrace(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const ReplayOptions options = {.limits = {.max_blocks = 1 << 14, .max_model_len = 1 << 16}};
  auto reader = TraceReader::Open(bytes, options.limits);
  if (!reader.ok()) return 0;
  TraceRecord record;
  TracePrinter::Fields fields;
  while (reader->Next(&record).ok()) {
    fields.clear();
    TracePrinter printer(&fields);
    RecordFields(printer, record);
  }
  const auto report = VerifyTrace(bytes, options);
  const auto workload = ReadWorkload(bytes, options);
  if (workload.ok()) SimulatePolicy(*workload, {.policy = PolicyKind::kFair});
  return report.ok() ? report->records : 0;
}

}  // namespace quire::testing
