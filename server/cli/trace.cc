// `quire trace`: the record of all scheduling.
#include <ostream>

#include "absl/strings/str_cat.h"
#include "server/cli/client.h"
#include "server/cli/commands.h"
#include "server/cli/render.h"

namespace quire::cli {

int RunTrace(const TraceOptions& options, Session& session) {
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  const auto trace = client->ScheduleTrace(options.stop);
  if (!trace.ok()) return ReportFailure(session, trace.status());
  if (options.json) {
    session.out << JsonLine({{"recording", trace->recording()},
                             {"records", trace->records()},
                             {"bytes", trace->bytes()},
                             {"lost_records", trace->lost_records()}});
  } else if (!trace->recording() && trace->bytes() == 0) {
    session.out << "no schedule trace is recorded\n";
  } else {
    session.out << absl::StrCat(trace->recording() ? "recording" : "stopped", ": ", trace->records(), " records, ",
                                BytesText(trace->bytes()));
    if (trace->lost_records() > 0) session.out << ", " << trace->lost_records() << " more were not written";
    session.out << "\n";
  }
  session.out.flush();
  return kExitOk;
}

}  // namespace quire::cli
