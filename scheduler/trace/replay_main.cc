// quire_replay: runs a schedule trace without a model.

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "scheduler/trace/policy_comparison.h"
#include "scheduler/trace/replay.h"
#include "scheduler/trace/trace_codec.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDiffers = 1, kUsage = 64, kBadTrace = 65, kNoFile = 66;

struct Arguments {
  std::string path;
  std::vector<std::string> policies;
  int32_t blocks = 0;
  bool json = false, print = false, no_invariants = false;
};

const std::vector<std::pair<std::string, PolicyKind>> kPolicies = {{"fcfs", PolicyKind::kFcfs},
                                                                   {"priority", PolicyKind::kPriority},
                                                                   {"deadline", PolicyKind::kDeadline},
                                                                   {"fair", PolicyKind::kFair}};

const char* Name(TraceEnd end) {
  constexpr const char* kNames[] = {"stopped", "full", "too slow", "unwritten"};
  return kNames[static_cast<int>(end)];
}

int Fail(int code, const std::string& message) {
  std::fprintf(stderr, "quire_replay: %s\n", message.c_str());
  return code;
}

int Verify(const std::string& bytes, const Arguments& arguments) {
  const auto report = VerifyTrace(bytes, {.check_invariants = !arguments.no_invariants});
  if (!report.ok()) return Fail(kBadTrace, std::string(report.status().message()));
  if (arguments.json) {
    Json out = {
        {"verified", report->verified()},
        {"steps", report->steps},
        {"records", report->records},
        {"requests", report->stats.requests_finished + report->stats.requests_aborted + report->stats.requests_failed},
        {"preemptions", report->stats.preemptions},
        {"evictions", report->blocks.evictions},
        {"end", report->ended ? Name(report->end) : "missing"},
        {"lost_records", report->lost_records},
        {"other_miss_reasons", report->other_miss_reasons}};
    if (report->difference) {
      out["difference"] = {{"step", report->difference->step},        {"record", report->difference->record},
                           {"offset", report->difference->offset},    {"call", report->difference->call},
                           {"field", report->difference->field},      {"recorded", report->difference->recorded},
                           {"replayed", report->difference->replayed}};
    }
    if (!report->broken.ok()) out["broken"] = report->broken.message();
    if (!report->damage.ok()) out["damage"] = report->damage.message();
    std::cout << out.dump(2) << "\n";
  } else {
    std::cout << absl::StrFormat("%d steps in %d records (%d bytes): ", report->steps, report->records, bytes.size());
    if (report->difference) {
      std::cout << "DIFFERS\n" << report->difference->ToString() << "\n";
    } else if (!report->broken.ok()) {
      std::cout << "BROKEN after step " << report->steps << "\n" << report->broken.message() << "\n";
    } else {
      std::cout << "every plan and decision is reproduced\n";
    }
    if (!report->damage.ok()) std::cout << "the trace goes no further: " << report->damage.message() << "\n";
    if (report->lost_records > 0) {
      std::cout << absl::StrFormat("recording ended early (%s): %d records were lost\n", Name(report->end),
                                   report->lost_records);
    }
    if (report->other_miss_reasons > 0) {
      std::cout << absl::StrFormat("%d misses are explained otherwise\n", report->other_miss_reasons);
    }
  }
  if (report->difference || !report->broken.ok()) return kDiffers;
  return report->verified() ? 0 : kBadTrace;
}

Json ToJson(const Percentiles& p) { return {{"mean", p.mean}, {"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}}; }

Json ToJson(const PolicyOutcome& o) {
  Json tenants = Json::object();
  for (const auto& [name, tenant] : o.tenants) {
    tenants[name] = {{"requests", tenant.requests},
                     {"completed", tenant.completed},
                     {"ttft_seconds", ToJson(tenant.ttft)},
                     {"contended_tokens", tenant.contended_tokens}};
  }
  return {{"requests", o.requests},
          {"completed", o.completed},
          {"refused", o.refused},
          {"failed", o.failed},
          {"good", o.good},
          {"goodput_per_second", o.goodput()},
          {"seconds", o.seconds},
          {"ttft_seconds", ToJson(o.ttft)},
          {"itl_seconds", ToJson(o.itl)},
          {"e2e_seconds", ToJson(o.e2e)},
          {"steps", o.steps},
          {"prompt_tokens", o.prompt_tokens},
          {"output_tokens", o.output_tokens},
          {"preemptions", o.preemptions},
          {"recomputed_tokens", o.recomputed_tokens},
          {"hit_rate", o.hit_rate},
          {"fairness", o.fairness},
          {"tenants", tenants}};
}

void PrintRow(const std::string& policy, const PolicyOutcome& o) {
  std::cout << absl::StrFormat(
      "%-9s %5d/%-5d %6d %8.2f %8.0f %8.0f %8.0f %7.1f %7.1f %7.1f %7d %10d %6.1f%% %5.3f %8.1f\n", policy, o.completed,
      o.requests, o.good, o.goodput(), o.ttft.p50 * 1e3, o.ttft.p90 * 1e3, o.ttft.p99 * 1e3, o.itl.p50 * 1e3,
      o.itl.p90 * 1e3, o.itl.p99 * 1e3, o.preemptions, o.recomputed_tokens, o.hit_rate * 100, o.fairness, o.seconds);
}

void PrintTenants(const std::string& policy, const PolicyOutcome& o) {
  if (o.tenants.size() < 2) return;
  std::cout << "\n"
            << policy << ", by tenant:\n"
            << absl::StrFormat("%-24s %11s %9s %9s %16s\n", "tenant", "completed", "ttft p50", "ttft p99",
                               "contended tokens");
  for (const auto& [name, tenant] : o.tenants) {
    std::cout << absl::StrFormat("%-24s %5d/%-5d %9.0f %9.0f %16d\n", name.empty() ? "(none)" : name, tenant.completed,
                                 tenant.requests, tenant.ttft.p50 * 1e3, tenant.ttft.p99 * 1e3,
                                 tenant.contended_tokens);
  }
}

int ComparePolicies(const std::string& bytes, const Arguments& arguments) {
  const auto workload = ReadWorkload(bytes);
  if (!workload.ok()) return Fail(kBadTrace, std::string(workload.status().message()));
  Json out = Json::object();
  if (!arguments.json) {
    if (!workload->timed) std::cout << "the trace has no step times: those of a made-up machine are used\n";
    std::cout << absl::StrFormat("%-9s %11s %6s %8s %8s %8s %8s %7s %7s %7s %7s %10s %7s %5s %8s\n", "policy",
                                 "completed", "good", "good/s", "ttft50", "ttft90", "ttft99", "itl50", "itl90", "itl99",
                                 "preempt", "recomputed", "hits", "fair", "seconds");
  }
  std::vector<std::pair<std::string, PolicyOutcome>> outcomes;
  for (const std::string& name : arguments.policies) {
    ComparisonOptions options;
    for (const auto& [known, kind] : kPolicies) {
      if (known == name) options.policy = kind;
    }
    if (arguments.blocks > 0) options.num_blocks = arguments.blocks;
    outcomes.emplace_back(name, SimulatePolicy(*workload, options));
    if (!arguments.json) PrintRow(name, outcomes.back().second);
  }
  for (const auto& [name, outcome] : outcomes) {
    if (!arguments.json) PrintTenants(name, outcome);
    out[name] = ToJson(outcome);
  }
  if (arguments.json) std::cout << out.dump(2) << "\n";
  return 0;
}

// One line a record: its fields as a JSON object.
int Print(const std::string& bytes) {
  auto reader = TraceReader::Open(bytes);
  if (!reader.ok()) return Fail(kBadTrace, std::string(reader.status().message()));
  const auto print = [](const TracePrinter::Fields& fields) {
    Json line = Json::object();
    for (const auto& [name, value] : fields) line[name] = value;
    std::cout << line.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  };
  TracePrinter::Fields fields;
  TracePrinter header(&fields);
  HeaderFields(header, reader->header(), TraceLimits());
  print(fields);
  TraceRecord record;
  do {
    if (absl::Status status = reader->Next(&record); !status.ok()) {
      return Fail(kBadTrace, std::string(status.message()));
    }
    fields.clear();
    TracePrinter printer(&fields);
    RecordFields(printer, record);
    print(fields);
  } while (record.call != TraceCall::kEnd);
  return 0;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Runs a schedule trace (quired --schedule-trace) without a model. Reproduces each plan and each decision, bit "
      "for "
      "bit, and checks all invariants after each call; or with --policy serves the same requests under other policies "
      "in simulated time. Exit codes: 0; 1 a difference or a broken invariant; 64 usage; 65 the trace is damaged or "
      "has "
      "no end; 66 no such file.");
  app.add_option("TRACE", arguments.path, "The trace file")->required();
  std::vector<std::string> names;
  for (const auto& [name, kind] : kPolicies) names.push_back(name);
  app.add_option("--policy", arguments.policies,
                 "Policies to compare, separated by commas: fcfs,priority,deadline,fair")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_option("--blocks", arguments.blocks, "With --policy: usable KV blocks, instead of the trace's")
      ->check(CLI::Range(1, TraceLimits().max_blocks - 1));
  app.add_flag("--json", arguments.json, "The result as one JSON object");
  app.add_flag("--print", arguments.print, "Print the records, one JSON object a line, and replay nothing");
  app.add_flag("--no-invariants", arguments.no_invariants, "Do not check invariants: faster");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  std::ifstream file(arguments.path, std::ios::binary);
  if (!file) return Fail(kNoFile, "cannot open " + arguments.path);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (arguments.print) return Print(bytes);
  return arguments.policies.empty() ? Verify(bytes, arguments) : ComparePolicies(bytes, arguments);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::Main(argc, argv); }
