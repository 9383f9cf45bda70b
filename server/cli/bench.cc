#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "server/cli/bench_dataset.h"
#include "server/cli/bench_metrics.h"
#include "server/cli/bench_report.h"
#include "server/cli/client.h"
#include "server/cli/commands.h"
#include "server/cli/interrupt.h"
#include "server/cli/load_run.h"

namespace quire::cli {
namespace {

constexpr absl::Duration kProgressInterval = absl::Milliseconds(200);

// Runs one load after another; an interrupt ends the present one and starts no more.
class Bench {
 public:
  Bench(const BenchOptions& options, Session& session, Client& client, const v1::GetModelInfoResponse& info)
      : options_(options), session_(session), client_(client), info_(info) {}

  int Run() {
    std::string json_lines;
    bool all_completed = true;
    for (size_t i = 0; i < options_.concurrency.size() && !interrupted(); ++i) {
      auto result = RunOne(static_cast<int>(i));
      if (!result.ok()) return ReportError(session_, result.status().message(), kExitUsage);
      if (options_.json_path != "-") session_.out << ReportText(*result) << std::flush;
      json_lines += JsonLine(ReportJson(*result));
      all_completed &= result->metrics.failed == 0;
    }
    if (!WriteJson(json_lines)) return kExitFailed;
    return all_completed && !interrupted() ? kExitOk : kExitFailed;
  }

  void Interrupt() {
    absl::MutexLock lock(&mutex_);
    interrupted_ = true;
    if (current_ != nullptr) current_->Cancel();
  }

 private:
  absl::StatusOr<BenchResult> RunOne(int index) {
    DatasetOptions dataset;
    dataset.name = options_.dataset;
    dataset.input_len = options_.input_len;
    dataset.output_len = options_.output_len;
    dataset.shared_prefix_len = options_.shared_prefix_len;
    dataset.seed = options_.seed;
    dataset.vocab_size = static_cast<int32_t>(info_.vocab_size());
    dataset.max_model_len = static_cast<int32_t>(info_.max_model_len());
    const auto requests = MakeDataset(dataset, options_.num_requests, /*stream=*/0);
    if (!requests.ok()) return requests.status();
    const auto warmup = MakeDataset(dataset, options_.warmup, /*stream=*/1);
    if (!warmup.ok()) return warmup.status();

    LoadOptions load;
    load.concurrency = options_.concurrency[index];
    load.temperature = options_.temperature;
    load.ignore_eos = options_.ignore_eos;
    load.seed = options_.seed;
    load.salt = absl::StrFormat("bench-%d-%d-%d", getpid(), absl::ToUnixMicros(absl::Now()), index);
    if (!warmup->empty()) RunLoad(*warmup, load, "warm-up");

    BenchResult result;
    result.date = absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone());
    result.model = info_.model();
    result.dataset = options_.dataset;
    result.concurrency = load.concurrency;
    result.num_requests = options_.num_requests;
    const std::unique_ptr<LoadRun> run = RunLoad(*requests, load, absl::StrFormat("concurrency %d", load.concurrency));
    const std::vector<RequestRecord> records = run->records();
    result.metrics = ComputeMetrics(records, run->duration());
    for (const RequestRecord& record : records) {
      if (!record.completed) ++result.errors[record.error];
    }
    return result;
  }

  std::unique_ptr<LoadRun> RunLoad(const std::vector<BenchRequest>& requests, const LoadOptions& load,
                                   const std::string& label) {
    auto run = std::make_unique<LoadRun>(client_, requests, load);
    {
      absl::MutexLock lock(&mutex_);
      current_ = run.get();
      if (interrupted_) run->Cancel();
    }
    run->Start();
    const int64_t total = static_cast<int64_t>(requests.size());
    while (!run->Wait(session_.err_is_terminal ? kProgressInterval : absl::InfiniteDuration())) {
      session_.err << "\r" << ProgressBar(label, run->num_ended(), total) << std::flush;
    }
    if (session_.err_is_terminal) session_.err << "\r" << ProgressBar(label, run->num_ended(), total) << "\n";
    absl::MutexLock lock(&mutex_);
    current_ = nullptr;
    return run;
  }

  bool WriteJson(const std::string& lines) {
    if (options_.json_path.empty()) return true;
    if (options_.json_path == "-") {
      session_.out << lines << std::flush;
      return true;
    }
    std::ofstream file(options_.json_path);
    file << lines << std::flush;
    if (!file.good()) ReportError(session_, absl::StrCat("cannot write ", options_.json_path), kExitFailed);
    return file.good();
  }

  bool interrupted() const {
    absl::MutexLock lock(&mutex_);
    return interrupted_;
  }

  const BenchOptions& options_;
  Session& session_;
  Client& client_;
  const v1::GetModelInfoResponse& info_;
  mutable absl::Mutex mutex_;
  LoadRun* current_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

int RunBench(const BenchOptions& options, Session& session) {
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  const auto info = client->GetModelInfo();
  if (!info.ok()) return ReportFailure(session, info.status());
  Bench bench(options, session, *client, *info);
  InterruptWatch interrupt([&] { bench.Interrupt(); });
  return bench.Run();
}

}  // namespace quire::cli
