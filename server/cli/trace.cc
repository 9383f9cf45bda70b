// `quire trace`: the record of all scheduling.
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/cli/client.h"
#include "server/cli/commands.h"
#include "server/cli/render.h"

namespace quire::cli {
namespace {

using Trace = v1::ScheduleTraceResponse;

constexpr absl::Duration kPollInterval = absl::Milliseconds(50);

std::string StateName(const Trace& trace) {
  switch (trace.state()) {
    case Trace::STATE_NONE:
      return "none";
    case Trace::STATE_PENDING:
      return "pending";
    case Trace::STATE_RECORDING:
      return "recording";
    case Trace::STATE_ENDED:
      return "ended";
    case Trace::STATE_STOPPING:
      return "stopping";
    case Trace::STATE_STOPPED:
      return "stopped";
    default:
      return "unknown";
  }
}

void Print(const Trace& trace, bool json, Session& session) {
  if (json) {
    session.out << JsonLine({{"state", StateName(trace)},
                             {"recording", trace.recording()},
                             {"file", trace.file()},
                             {"records", trace.records()},
                             {"bytes", trace.bytes()},
                             {"lost_records", trace.lost_records()},
                             {"problem", trace.problem()}});
  } else if (trace.state() == Trace::STATE_NONE) {
    session.out << "no schedule trace is recorded\n";
  } else if (trace.state() == Trace::STATE_PENDING) {
    session.out << "pending: begins as soon as no request is queued or running, in " << trace.file() << "\n";
  } else {
    session.out << absl::StrCat(StateName(trace), ": ", trace.records(), " records, ", BytesText(trace.bytes()), " in ",
                                trace.file());
    if (trace.lost_records() > 0) session.out << ", " << trace.lost_records() << " more were not written";
    session.out << "\n";
  }
  if (!json && !trace.problem().empty()) session.out << trace.problem() << "\n";
  session.out.flush();
}

// The state once it is no longer `passing`.
absl::StatusOr<Trace> Await(Client& client, absl::StatusOr<Trace> trace, Trace::State passing) {
  while (trace.ok() && trace->state() == passing) {
    absl::SleepFor(kPollInterval);
    trace = client.ScheduleTrace({});
  }
  return trace;
}

}  // namespace

int RunTraceStatus(const TraceOptions& options, Session& session) {
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  const auto trace = client->ScheduleTrace({});
  if (!trace.ok()) return ReportFailure(session, trace.status());
  Print(*trace, options.json, session);
  return kExitOk;
}

int RunTraceStart(const TraceStartOptions& options, Session& session) {
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  v1::ScheduleTraceRequest request;
  v1::ScheduleTraceStart& start = *request.mutable_start();
  start.set_file(options.file);
  start.set_max_bytes(options.max_bytes);
  if (options.max_wait_seconds) start.set_max_wait_seconds(*options.max_wait_seconds);
  absl::StatusOr<Trace> trace = client->ScheduleTrace(request);
  if (!options.no_wait) trace = Await(*client, std::move(trace), Trace::STATE_PENDING);
  if (!trace.ok()) return ReportFailure(session, trace.status());
  Print(*trace, options.json, session);
  return trace->state() == Trace::STATE_NONE ? kExitFailed : kExitOk;
}

// Waits for the file to be complete.
int RunTraceStop(const TraceOptions& options, Session& session) {
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  v1::ScheduleTraceRequest request;
  request.set_stop(true);
  const auto trace = Await(*client, client->ScheduleTrace(request), Trace::STATE_STOPPING);
  if (!trace.ok()) return ReportFailure(session, trace.status());
  Print(*trace, options.json, session);
  return kExitOk;
}

}  // namespace quire::cli
