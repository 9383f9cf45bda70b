#include <ostream>

#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "server/cli/client.h"
#include "server/cli/commands.h"
#include "server/cli/interrupt.h"
#include "server/cli/render.h"

namespace quire::cli {
namespace {

constexpr int kLinesPerHeader = 20;
constexpr char kHeader[] =
    "running waiting    held  active cached   free  hit%  preempt  steps/s  tok/s  ms/step  GEMM%  attn%  samp%  "
    "sched%  "
    "rest%\n";

// One line of --watch: the present state, and rates between two readings.
std::string WatchLine(const v1::GetStatsResponse& before, const v1::GetStatsResponse& now) {
  const double seconds = now.uptime_seconds() - before.uptime_seconds();
  const auto rate = [seconds](uint64_t from, uint64_t to) { return seconds > 0 ? (to - from) / seconds : 0.0; };
  const v1::StepSeconds &from = before.total_step_seconds(), &to = now.total_step_seconds();
  const double step_seconds = to.total() - from.total();
  const uint64_t steps = now.steps() - before.steps();
  return absl::StrFormat(
      "%7d %7d %7d %7d %6d %6d %5.1f %8d %8.1f %6.1f %8.2f %6.1f %6.1f %6.1f %7.1f %6.1f\n", now.requests_running(),
      now.requests_waiting(), now.requests_held(), now.kv_blocks_active(), now.kv_blocks_cached(), now.kv_blocks_free(),
      Percent(now.prefix_hit_tokens(), now.prefix_query_tokens()), now.preemptions(), rate(before.steps(), now.steps()),
      rate(before.generation_tokens(), now.generation_tokens()), steps > 0 ? step_seconds / steps * 1e3 : 0.0,
      Percent(to.linear() - from.linear(), step_seconds), Percent(to.attention() - from.attention(), step_seconds),
      Percent(to.sampling() - from.sampling(), step_seconds),
      Percent(to.scheduling() - from.scheduling(), step_seconds), Percent(to.rest() - from.rest(), step_seconds));
}

}  // namespace

int RunStats(const StatsOptions& options, Session& session) {
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  auto stats = client->GetStats();
  if (!stats.ok()) return ReportFailure(session, stats.status());
  if (!options.watch) {
    session.out << (options.json ? JsonLine(StatsToJson(*stats)) : StatsText(*stats)) << std::flush;
    return kExitOk;
  }
  absl::Notification interrupted;
  InterruptWatch interrupt([&] { interrupted.Notify(); });
  v1::GetStatsResponse before = *stats;
  for (int64_t line = 0; options.count == 0 || line < options.count; ++line) {
    if (interrupted.WaitForNotificationWithTimeout(absl::Seconds(options.interval_seconds))) break;
    stats = client->GetStats();
    if (!stats.ok()) return ReportFailure(session, stats.status());
    if (options.json) {
      session.out << JsonLine(StatsToJson(*stats)) << std::flush;
    } else {
      if (line % kLinesPerHeader == 0) session.out << kHeader;
      session.out << WatchLine(before, *stats) << std::flush;
    }
    before = *stats;
  }
  return kExitOk;
}

}  // namespace quire::cli
