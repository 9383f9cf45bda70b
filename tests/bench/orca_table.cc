#include "tests/bench/orca_table.h"

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"

namespace quire {
namespace {

constexpr OrcaOptions kOptions;

std::string Row(const OrcaResult& result, const OrcaResult& paged) {
  return absl::StrFormat("| %s | %.1f | %.2fx | %.0f | %.1f %% | %.1f %% | %.1f %% | %.1f %% | %.1f %% | %.4f |\n",
                         result.policy, result.running, paged.running / result.running, result.length,
                         100 * result.tokens, 100 * result.future, 100 * result.never, 100 * result.unused,
                         100 * result.waste(), result.requests_per_step);
}

}  // namespace

std::string OrcaTable::Text() const {
  std::string text = absl::StrFormat(
      "%s, %d requests, %d slots, at most %d tokens, blocks of %d:\n\n"
      "| policy | running | paged runs | mean length | tokens | future | never | unused | waste | requests a step |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n",
      dataset, num_requests, kOptions.num_slots, kOptions.max_len, kOptions.block_size);
  for (const OrcaResult* result : {&max, &power_of_two, &oracle, &paged}) text += Row(*result, paged);
  absl::StrAppendFormat(&text,
                        "\nPaged: %.1f %% of the blocks in use before the first preemption; %d preemptions of %d "
                        "requests, %.2f %% of the tokens computed again.\n",
                        100 * paged.use_at_first_preemption, paged.preemptions, num_requests, 100 * paged.recomputed);
  return text;
}

OrcaTable MakeOrcaTable(const char* dataset, int num_requests) {
  cli::DatasetOptions generator;
  generator.name = dataset;
  generator.vocab_size = 32'000;
  generator.max_model_len = kOptions.max_len;
  const auto trace = cli::MakeDataset(generator, num_requests, 0);
  QUIRE_CHECK(trace.ok());
  return {.dataset = dataset,
          .num_requests = num_requests,
          .max = SimulateReservation(Reservation::kMax, *trace, kOptions),
          .power_of_two = SimulateReservation(Reservation::kPowerOfTwo, *trace, kOptions),
          .oracle = SimulateReservation(Reservation::kOracle, *trace, kOptions),
          .paged = SimulatePaged(*trace, kOptions)};
}

std::vector<OrcaFigure> CheckGoals(const OrcaGoals& goals, const OrcaTable& table) {
  const double half_block = (kOptions.block_size - 1) / 2.0;
  const double waste = table.paged.waste();
  const double max_waste = goals.max_waste.value_or(half_block / (table.paged.length + half_block) + 0.01);
  const double over_oracle = table.paged.running / table.oracle.running;
  const double over_max = table.paged.running / table.max.running;
  return {{waste <= max_waste, absl::StrFormat("waste %.2f %%, at most %.2f %%", 100 * waste, 100 * max_waste)},
          {over_oracle >= goals.least_over_oracle,
           absl::StrFormat("%.2fx the sequences of oracle, at least %.1fx", over_oracle, goals.least_over_oracle)},
          {over_max >= goals.least_over_max,
           absl::StrFormat("%.2fx the sequences of max, at least %.1fx", over_max, goals.least_over_max)}};
}

}  // namespace quire
