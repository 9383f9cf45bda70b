#include "tests/bench/goal_report.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace quire {
namespace {

// One line a benchmark. The best counts: what else runs on the machine only ever adds time.
class Reporter : public benchmark::BenchmarkReporter {
 public:
  explicit Reporter(BenchFigures* figures) : figures_(figures) {}

  bool ReportContext(const Context&) override {
    std::printf("%-28s %12s %12s %12s  repetitions\n", "benchmark, us", "best", "median", "worst");
    return true;
  }

  // Called with all repetitions of a benchmark, then with aggregates of them.
  void ReportRuns(const std::vector<Run>& runs) override {
    std::vector<double> seconds;
    std::string name;
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
      name = run.run_name.function_name + (run.run_name.args.empty() ? "" : "/" + run.run_name.args);
      if (run.error_occurred) {
        std::printf("%-28s failed: %s\n", name.c_str(), run.error_message.c_str());
        return;
      }
      seconds.push_back(run.real_accumulated_time / static_cast<double>(run.iterations));
      for (const auto& [counter, value] : run.counters) {
        auto& worst = figures_->counters[name][counter];
        worst = std::max<double>(worst, value);
      }
    }
    if (seconds.empty()) return;
    std::sort(seconds.begin(), seconds.end());
    figures_->seconds[name] = seconds.front();
    std::printf("%-28s %12.4f %12.4f %12.4f  %zu\n", name.c_str(), 1e6 * seconds.front(),
                1e6 * seconds[seconds.size() / 2], 1e6 * seconds.back(), seconds.size());
    std::fflush(stdout);
  }

 private:
  BenchFigures* figures_;
};

bool Meets(double figure, double limit, bool more_is_better) {
  return more_is_better ? figure >= limit : figure <= limit;
}

}  // namespace

int RunBenchmarks(int argc, char** argv, const std::vector<BenchGoal>& goals) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  BenchFigures figures;
  Reporter reporter(&figures);
  benchmark::RunSpecifiedBenchmarks(&reporter);
  std::printf("\n| # | what | best | must | aim | |\n|---|---|---|---|---|---|\n");
  for (const BenchGoal& goal : goals) {
    double figure = 0;
    try {
      figure = goal.figure(figures);
    } catch (const std::out_of_range&) {
      continue;  // its benchmarks were not selected, or failed and said so
    }
    const bool more = goal.aim > goal.must;
    const char* verdict = Meets(figure, goal.aim, more)    ? "aim met"
                          : Meets(figure, goal.must, more) ? "must met"
                                                           : "MISSED";
    std::printf("| %s | %s | %.4g | %g | %g | %s |\n", goal.id, goal.what, figure, goal.must, goal.aim, verdict);
  }
  return 0;
}

}  // namespace quire
